// Package kube finds workers in Kubernetes: pods by their labels, or the
// endpoints of a Service.
//
// The central type is source: it lists, watches from there, and lists anew
// whenever a watch ends, whatever ended it, and at the latest after
// KubernetesConfig.Resync. So a change that a watch lost, or never told, is made
// up for within that time, and a watch is only what makes it faster. Start
// reading at source.run; what an object says of workers is in pods.go and
// slices.go.
//
// Why not client-go: it made the router's binary 56.8 MB instead of 20.2 MB
// (v0.35.0 with informers of pods and EndpointSlices, linux/amd64, go build
// -trimpath -ldflags '-s -w' ./cmd/rhizome). What is needed here is two GET
// requests on two kinds of objects.
package kube
