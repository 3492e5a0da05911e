// Package mesh joins replicas: it finds them, keeps connections to them and
// moves the frames of package core between them.
//
// The central type is [Node]; start reading at [Node.Run]. Membership is
// memberlist's, over the gossip plane of package transport. What replicas share
// is in mesh/core, which the node guards by one lock: see [Node.Do].
package mesh
