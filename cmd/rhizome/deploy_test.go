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
	write(t, file, strings.ReplaceAll(kinds["ConfigMap"].Data["rhizome.yaml"], "/etc/rhizome-admin/token", token))
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"check-config", file}, &out, &errs); code != 0 || !strings.Contains(out.String(), `selector: "app=vllm"`) {
		t.Errorf("the configuration: exit %d: %s%s", code, out.String(), errs.String())
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
