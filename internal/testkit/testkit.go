// Package testkit holds the fakes that the tests of all rooms share: a
// scripted worker that answers byte for byte what it is told, a raw client that
// sends any bytes, an in-memory network for tests in virtual time, the
// differential mode that compares a router with no router, and checks that
// nothing is left behind.
//
// The central type is [Worker]; start reading there, then [Differ] and
// [AtRest]. The product never imports this package.
package testkit
