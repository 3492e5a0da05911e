// Package testkit holds the fakes that the tests of all rooms share: a
// scripted worker that answers byte for byte what it is told, an in-memory
// network for tests in virtual time, and checks that nothing is left behind.
//
// The central type is [Worker]; start reading there. The product never imports
// this package.
package testkit
