package transport

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func secretID(t *testing.T, secrets ...string) *secretIdentity {
	t.Helper()
	id, err := newSecretIdentity(Config{Cluster: "c", Secrets: secrets}, "b")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// believes says whether one takes what the other shows.
func believes(t *testing.T, by, shown identity) error {
	t.Helper()
	now := time.Now()
	cert, err := shown.certificate(now)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	_, err = verify([]*x509.Certificate{leaf}, by.roots(), "c", now)
	return err
}

// All replicas derive one authority, byte for byte; another secret, another.
func TestAuthorityIsAFunctionOfTheSecret(t *testing.T) {
	_, one, err := authority(testSecret(1))
	if err != nil {
		t.Fatal(err)
	}
	_, again, _ := authority(testSecret(1))
	_, other, _ := authority(testSecret(2))
	if !bytes.Equal(one.Raw, again.Raw) || bytes.Equal(one.Raw, other.Raw) {
		t.Error("equal secrets must give equal authorities, and others others")
	}
}

// The documented order of a rotation never leaves two replicas that don't
// believe each other: append, put first, take out, one replica at a time.
func TestRotation(t *testing.T) {
	old, next := testSecret(1), testSecret(2)
	steps := [][]string{{old}, {old, next}, {next, old}, {next}}
	for i := range len(steps) - 1 {
		before, after := secretID(t, steps[i]...), secretID(t, steps[i+1]...)
		if err := believes(t, before, after); err != nil {
			t.Errorf("step %d: before it, what comes after it is refused: %v", i, err)
		}
		if err := believes(t, after, before); err != nil {
			t.Errorf("step %d: after it, what was before it is refused: %v", i, err)
		}
	}
	if err := believes(t, secretID(t, next), secretID(t, old)); err == nil {
		t.Error("the old secret is still believed after the rotation")
	}
}

func TestLeafIsRenewedAtHalfLife(t *testing.T) {
	id, now := secretID(t, testSecret(1)), time.Now()
	first, err := id.certificate(now)
	if err != nil {
		t.Fatal(err)
	}
	if got := first.Leaf.URIs[0].String(); got != "rhizome://c/b" {
		t.Errorf("it names %s", got)
	}
	if d := now.Sub(first.Leaf.NotBefore).Round(time.Minute); d != 24*time.Hour {
		t.Errorf("it begins %v ago", d)
	}
	if d := first.Leaf.NotAfter.Sub(now).Round(time.Minute); d != 7*24*time.Hour {
		t.Errorf("it ends in %v", d)
	}
	for _, c := range []struct {
		at    time.Duration
		fresh bool
	}{{0, false}, {time.Hour, false}, {84*time.Hour - time.Minute, false}, {84 * time.Hour, true}, {-48 * time.Hour, true}} {
		again, err := id.certificate(now.Add(c.at))
		if err != nil {
			t.Fatal(err)
		}
		if fresh := again != first; fresh != c.fresh {
			t.Errorf("after %v: renewed %v, want %v", c.at, fresh, c.fresh)
		}
		if again != first {
			break // the clock went on; what follows is another leaf's life
		}
	}
}

// A connection outlives the certificate that it began with, and a new one is
// made with the next.
func TestConnectionsAfterRenewal(t *testing.T) {
	var offset atomic.Int64
	both := func(_ *Config, o *Options) {
		o.Wall = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	}
	a, b := listen(t, "a", both), listen(t, "b", both)
	out := open(t, a, addr(b), 1)
	offset.Store(int64(20 * 24 * time.Hour))
	if err := out.Send(soon(t), []byte("still here")); err != nil {
		t.Error(err)
	}
	if _, err := a.Raft().Dial(raft.ServerAddress(addr(b)), patience); err != nil {
		t.Error(err)
	}
}

// files writes a CA and a certificate of it, and returns their names.
func files(t *testing.T, dir, uri string) TLSFiles {
	t.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	caKey, leafKey := key(), key()
	now := time.Now()
	ca := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "ca"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), URIs: []*url.URL{u},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &leafKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	return TLSFiles{CA: write("ca.pem", "CERTIFICATE", caDER), Cert: write("cert.pem", "CERTIFICATE", leafDER), Key: write("key.pem", "PRIVATE KEY", keyDER)}
}

// Replicas with certificates of one authority connect; their names come from
// their hellos. Those of another cluster don't.
func TestFiles(t *testing.T) {
	with := func(f TLSFiles) func(*Config, *Options) {
		return func(c *Config, _ *Options) { c.Secrets, c.TLS = nil, f }
	}
	f := files(t, t.TempDir(), "rhizome://default")
	a, b := listen(t, "a", with(f)), listen(t, "b", with(f))
	if c := channel(t, a, addr(b)); c.Peer() != b.Self() {
		t.Errorf("connected with %v", c.Peer())
	}
	other := listen(t, "o", with(f), func(c *Config, _ *Options) { c.Cluster = "other" })
	if _, err := other.Delta().Open(soon(t), addr(b)); err == nil {
		t.Error("another cluster connects")
	}
	if _, err := Listen(Config{Listen: "127.0.0.1:0", TLS: TLSFiles{CA: f.CA, Cert: f.Cert, Key: f.CA}}, Options{Boot: "x"}); err == nil {
		t.Error("a key that is none is taken")
	}
}

// Files are read again when they changed, at most every lookInterval, and what
// can't be read changes nothing.
func TestFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	f := files(t, dir, "rhizome://c")
	var problem error
	id, err := newFileIdentity(f, func(err error) { problem = err })
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	at := func(d time.Duration) []byte {
		t.Helper()
		c, err := id.certificate(now.Add(d))
		if err != nil {
			t.Fatal(err)
		}
		return c.Certificate[0]
	}
	first := at(0)
	files(t, dir, "rhizome://c")
	stamp := now.Add(time.Minute) // whatever the file system's clock resolves
	for _, name := range []string{f.CA, f.Cert, f.Key} {
		if err := os.Chtimes(name, stamp, stamp); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(at(time.Second), first) {
		t.Error("looked again too soon")
	}
	second := at(lookInterval)
	if problem != nil {
		t.Error(problem)
	}
	if bytes.Equal(second, first) {
		t.Error("not read again")
	}
	if err := believes(t, id, id); err != nil {
		t.Errorf("the new authorities were not read with it: %v", err)
	}
	if err := os.WriteFile(f.Key, []byte("half a ke"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(at(2*lookInterval), second) || problem == nil {
		t.Errorf("a broken file changed something, or went unnoticed (%v)", problem)
	}
}
