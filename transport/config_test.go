package transport

import (
	"net/netip"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	good := Config{Secrets: []string{testSecret(1)}}
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string // "" for no error
	}{
		{"nothing set", func(c *Config) { *c = Config{} }, ""},
		{"a secret", func(*Config) {}, ""},
		{"secrets to rotate", func(c *Config) { c.Secrets = append(c.Secrets, testSecret(2)) }, ""},
		{"files", func(c *Config) { *c = Config{TLS: TLSFiles{"a", "b", "c"}} }, ""},
		{"an address to advertise", func(c *Config) { c.Advertise = "10.1.2.3:99" }, ""},
		{"one without a port", func(c *Config) { c.Advertise = "fd00::1" }, ""},
		{"listen", func(c *Config) { c.Listen = "7400" }, `listen is "7400"`},
		{"a name to advertise", func(c *Config) { c.Advertise = "pod:7400" }, `advertise is "pod:7400"`},
		{"a wildcard to advertise", func(c *Config) { c.Advertise = "0.0.0.0" }, `advertise is "0.0.0.0"`},
		{"cluster", func(c *Config) { c.Cluster = "Prod_1" }, `cluster is "Prod_1"`},
		{"a dotted cluster", func(c *Config) { c.Cluster = "a..b" }, `cluster is "a..b"`},
		{"a short secret", func(c *Config) { c.Secrets[0] = "short" }, "secrets[0] has 5 bytes"},
		{"a dull secret", func(c *Config) { c.Secrets[0] = strings.Repeat("ab", 20) }, "secrets[0] has only 2 different bytes"},
		{"many secrets", func(c *Config) { c.Secrets = make([]string, 5) }, "secrets has 5 items"},
		{"both", func(c *Config) { c.TLS = TLSFiles{"a", "b", "c"} }, "tls is set and so is secrets"},
		{"half of the files", func(c *Config) { *c = Config{TLS: TLSFiles{CA: "a"}} }, "tls is incomplete"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := good
			cfg.Secrets = append([]string(nil), good.Secrets...)
			c.change(&cfg)
			switch err := cfg.Validate(); {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want one with %q", err, c.want)
			case err != nil && strings.Contains(err.Error(), testSecret(1)):
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}

func TestNoMeshNoSocket(t *testing.T) {
	if (Config{}).Enabled() || !(Config{Secrets: []string{"s"}}).Enabled() || !(Config{TLS: TLSFiles{CA: "x"}}).Enabled() {
		t.Error("Enabled is wrong")
	}
	if e, err := Listen(Config{Listen: "127.0.0.1:0"}, Options{Boot: "a"}); err == nil {
		t.Errorf("listens at %v and trusts nobody", e.Self())
	}
	if _, err := Listen(Config{Secrets: []string{testSecret(1)}}, Options{Boot: "a b"}); err == nil {
		t.Error("a boot with a space is taken")
	}
}

func TestAdvertised(t *testing.T) {
	at := netip.MustParseAddrPort
	for _, c := range []struct {
		advertise string
		local     netip.AddrPort
		want      netip.AddrPort
	}{
		{"", at("10.0.0.1:7400"), at("10.0.0.1:7400")},
		{"", at("[::ffff:10.0.0.1]:7400"), at("10.0.0.1:7400")},
		{"10.9.9.9", at("[::]:7401"), at("10.9.9.9:7401")},
		{"10.9.9.9:1", at("[::]:7401"), at("10.9.9.9:1")},
		{"fd00::1", at("[::]:7401"), at("[fd00::1]:7401")},
	} {
		if got, err := advertised(Config{Advertise: c.advertise}, c.local); err != nil || got != c.want {
			t.Errorf("advertised(%q, %v) = %v, %v; want %v", c.advertise, c.local, got, err, c.want)
		}
	}
}
