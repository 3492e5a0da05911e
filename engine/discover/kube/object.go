package kube

import (
	"encoding/json"
	"time"
)

// object is what is read of a pod or an EndpointSlice, or, in an event of type
// ERROR, of a Status.
type object struct {
	Metadata metadata `json:"metadata"`

	Spec   podSpec   `json:"spec"`   // of a pod
	Status podStatus `json:"status"` // of a pod

	AddressType string         `json:"addressType"` // of an EndpointSlice
	Endpoints   []endpoint     `json:"endpoints"`   // of an EndpointSlice
	Ports       []endpointPort `json:"ports"`       // of an EndpointSlice

	Code    int    `json:"code"`    // of a Status
	Message string `json:"message"` // of a Status
}

type metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	CreationTimestamp time.Time         `json:"creationTimestamp"`
	DeletionTimestamp *time.Time        `json:"deletionTimestamp"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
}

type podSpec struct {
	Containers []struct {
		Name  string `json:"name"`
		Ports []struct {
			Name          string `json:"name"`
			ContainerPort int    `json:"containerPort"`
			Protocol      string `json:"protocol"`
		} `json:"ports"`
	} `json:"containers"`
}

type podStatus struct {
	// A Status has a text here, "Failure".
	podState
}

type podState struct {
	Phase      string `json:"phase"`
	PodIP      string `json:"podIP"`
	Conditions []struct {
		Type   string `json:"type"`
		Status string `json:"status"`
	} `json:"conditions"`
	ContainerStatuses []struct {
		Name         string `json:"name"`
		RestartCount int    `json:"restartCount"`
	} `json:"containerStatuses"`
}

type endpoint struct {
	Addresses  []string `json:"addresses"`
	Conditions struct {
		Ready       *bool `json:"ready"`
		Terminating *bool `json:"terminating"`
	} `json:"conditions"`
	TargetRef *struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
		UID  string `json:"uid"`
	} `json:"targetRef"`
}

type endpointPort struct {
	Name     string `json:"name"`
	Port     int    `json:"port"`
	Protocol string `json:"protocol"`
}

// UnmarshalJSON reads a pod's status; the text that a Status has there says
// nothing of a pod.
func (s *podStatus) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		return nil
	}
	return json.Unmarshal(text, &s.podState)
}
