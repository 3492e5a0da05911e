package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// The manifests in deploy hold a configuration that is good, and let the router
// ask for what that makes it ask for.
func TestKubernetesManifests(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kubernetes/rhizome.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Kind  string
		Data  map[string]string
		Rules []struct {
			APIGroups []string `yaml:"apiGroups"`
			Resources []string
			Verbs     []string
		}
	}
	kinds := make(map[string]object)
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(part), &o); err != nil {
			t.Fatalf("%v in\n%s", err, part)
		}
		kinds[o.Kind] = o
	}
	for _, kind := range []string{"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Deployment", "Service"} {
		if _, ok := kinds[kind]; !ok {
			t.Errorf("there is no %s", kind)
		}
	}
	file := filepath.Join(t.TempDir(), "rhizome.yaml")
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, "s3cret")
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "0123456789abcdefghijklmnopqrstuvwxyz")
	write(t, file, strings.NewReplacer("/etc/rhizome-admin/token", token, "/etc/rhizome-mesh/secret", secret).Replace(kinds["ConfigMap"].Data["rhizome.yaml"]))
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"check-config", file}, &out, &errs); code != 0 || !strings.Contains(out.String(), `selector: "app=vllm"`) {
		t.Errorf("the configuration: exit %d: %s%s", code, out.String(), errs.String())
	}
	if !strings.Contains(string(text), "clusterIP: None\n  publishNotReadyAddresses: true") || !strings.Contains(out.String(), "rhizome-mesh:7400") {
		t.Errorf("replicas don't find each other: %s", out.String())
	}
	allowed := make(map[string]string)
	for _, r := range kinds["Role"].Rules {
		for _, resource := range r.Resources {
			allowed[resource] = strings.Join(r.APIGroups, "") + ": " + strings.Join(r.Verbs, " ")
		}
	}
	if allowed["pods"] != ": get list watch" || allowed["endpointslices"] != "discovery.k8s.io: get list watch" || len(allowed) != 2 {
		t.Errorf("allowed is %v", allowed)
	}
}
