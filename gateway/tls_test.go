package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// writeCert puts a new certificate and key into the files of cfg.
func writeCert(t *testing.T, cfg TLSConfig, serial int64, written time.Time) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"router"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{cfg.Cert: {Type: "CERTIFICATE", Bytes: der}, cfg.Key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, written, written); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// TestTLS serves both protocols by TLS.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	files := TLSConfig{Cert: filepath.Join(dir, "c.pem"), Key: filepath.Join(dir, "k.pem")}
	cert := writeCert(t, files, 1, time.Now())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Proto", r.Proto) })
	go func() { result <- Config{TLS: files}.Serve(ctx, ln, ok, time.Second, discard) }()
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	for proto, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: h2}}
		resp, err := client.Get("https://" + ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Proto"); got != proto {
			t.Errorf("served by %s, want %s", got, proto)
		}
		client.CloseIdleConnections()
	}
	stop()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// TestCertificatesAreReadAgain when their files change; a bad file leaves the
// former certificate.
func TestCertificatesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	c := &certificate{files: TLSConfig{Cert: filepath.Join(dir, "c.pem"), Key: filepath.Join(dir, "k.pem")}}
	if _, err := c.get(nil); err == nil {
		t.Error("no files, no error")
	}
	serial := func() int64 {
		c.looked = time.Time{} // long ago
		got, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(got.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.SerialNumber.Int64()
	}
	start := time.Now()
	writeCert(t, c.files, 1, start)
	if got := serial(); got != 1 {
		t.Errorf("serial %d", got)
	}
	writeCert(t, c.files, 2, start.Add(time.Minute))
	if got := serial(); got != 2 {
		t.Errorf("after a change: serial %d", got)
	}
	if err := os.WriteFile(c.files.Key, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := serial(); got != 2 {
		t.Errorf("after a bad change: serial %d", got)
	}
	if err := (Config{TLS: TLSConfig{Cert: "c"}}).Validate(); err == nil {
		t.Error("a certificate without a key is valid")
	}
}
