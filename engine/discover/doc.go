// Package discover finds workers: lists in files, names in DNS and, in its
// package kube, pods and endpoints of Kubernetes.
//
// The central type is [Source]: something that tells, again and again, the
// whole list of the workers it sees, each as a [Found]. A [Runner] keeps the
// sources of a configuration running. What becomes of the lists is not decided
// here: fleet.Registry puts them together. Start reading at [Source].
package discover
