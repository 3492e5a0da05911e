package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// Each file of testdata is a case: the files it needs, the variables and flags
// if any, and what comes of it: the errors, or the settings that aren't
// defaults.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases:", err)
	}
	for _, file := range files {
		file, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			got := runCase(t, archive)
			last := &archive.Files[len(archive.Files)-1]
			if last.Name != "want" {
				t.Fatal("the last file must be want")
			}
			for _, secret := range []string{"s3cret", "hunter2"} {
				if strings.Contains(got, secret) {
					t.Errorf("a secret is shown:\n%s", got)
				}
			}
			last.Data = []byte(got)
			golden(t, file, txtar.Format(archive))
		})
	}
}

func runCase(t *testing.T, archive *txtar.Archive) string {
	t.Helper()
	source := Source{OtherEnv: []string{"RHIZOME_CONFIG", "RHIZOME_TEST_"}, EnvAliases: map[string]string{"RHIZOME_ADMIN_TOKEN": "gateway.admin.token"}}
	for _, f := range archive.Files {
		switch text := strings.TrimSpace(string(f.Data)); f.Name {
		case "env":
			source.Env = strings.Split(text, "\n")
		case "flags":
			for _, line := range strings.Split(text, "\n") {
				name, value, _ := strings.Cut(line, "=")
				source.Flags = append(source.Flags, Flag{Name: "--" + name, Path: name, Values: strings.Split(value, "|")})
			}
		case "want":
		default:
			if f.Name == "c.yaml" {
				source.File = f.Name
			}
			if err := os.WriteFile(f.Name, f.Data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	loaded, err := source.Load()
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	for _, s := range loaded.Settings() {
		if s.From != FromDefault {
			b.WriteString(s.Key + " = " + s.Value + " (" + s.At + ")\n")
		}
	}
	b.WriteString("files: " + strings.Join(loaded.Files, " ") + "\n")
	return b.String()
}

func TestErrorTellsWhatToWatch(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("c.yaml", []byte("gateway:\n  admin:\n    token: file:missing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Source{File: "c.yaml"}.Load()
	var e *Error
	if !errors.As(err, &e) || strings.Join(e.Files, " ") != "c.yaml missing" {
		t.Fatalf("error %v, files %v", err, e)
	}
	before := Fingerprint(e.Files)
	if err := os.WriteFile("missing", []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if Fingerprint(e.Files) == before {
		t.Error("a file that appears changes no fingerprint")
	}
	loaded, err := Source{File: "c.yaml"}.Load()
	if err != nil || loaded.Config.Gateway.Admin.Token != "hunter2" {
		t.Errorf("token %q, error %v", loaded.Config.Gateway.Admin.Token, err)
	}
}

func TestCheckReload(t *testing.T) {
	running, err := load([]byte("grace: 1s"))
	if err != nil {
		t.Fatal(err)
	}
	next, err := load([]byte("grace: 2s\nname: n\ngateway:\n  listen: \":1\"\n  max_attempts: 9\nfleet: {cluster: x}\n" +
		"route: {policy: random}\nlog: {level: warn}\nworkers: [http://a:1]"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var e *Error
	if errors.As(next.CheckReload(running), &e) {
		for _, p := range e.Problems {
			got = append(got, p.Key)
		}
	}
	if strings.Join(got, " ") != "grace name gateway.listen fleet.cluster" {
		t.Errorf("fixed changes: %v", got)
	}
	if text := e.Error(); !strings.Contains(text, "f.yaml:1:8: grace can't change while the router runs (from 1s to 2s): restart") {
		t.Errorf("the error says: %s", text)
	}
	if err := running.CheckReload(running); err != nil {
		t.Errorf("nothing changed, but %v", err)
	}
}

func TestEqualSettingsHaveEqualHashes(t *testing.T) {
	load := func(flags ...Flag) *Loaded {
		l, err := Source{Flags: flags}.Load()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	base := load()
	same := load(Flag{"--grace", "grace", []string{"30s"}})
	other := load(Flag{"--grace", "grace", []string{"31s"}})
	if base.Hash != same.Hash || base.Hash == other.Hash || !reflect.DeepEqual(base.Config, same.Config) {
		t.Errorf("hashes %s, %s, %s", base.Hash, same.Hash, other.Hash)
	}
	// A secret is shown nowhere, but another one is another configuration.
	token := func(s string) *Loaded { return load(Flag{"--admin-token", "gateway.admin.token", []string{s}}) }
	one, again, two := token("one"), token("one"), token("two")
	if one.Hash != again.Hash || one.Hash == two.Hash || one.Hash == base.Hash {
		t.Errorf("hashes with a secret %s, %s, another one %s", one.Hash, again.Hash, two.Hash)
	}
	if !reflect.DeepEqual(one.Settings(), two.Settings()) {
		t.Error("two secrets look different")
	}
}
