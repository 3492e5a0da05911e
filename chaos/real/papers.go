//go:build linux

package real

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// papers are the certificates of replicas that get theirs from files.
type papers struct {
	signs    *authority
	believed []*authority
}

// authority is one that signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newPapers() (*papers, error) {
	a, err := newAuthority()
	if err != nil {
		return nil, err
	}
	return &papers{a, []*authority{a}}, nil
}

// believe adds a new authority to those that are believed.
func (p *papers) believe() error {
	a, err := newAuthority()
	if err == nil {
		p.believed = append(p.believed, a)
	}
	return err
}

// change has the latest authority sign from now on.
func (p *papers) change() { p.signs = p.believed[len(p.believed)-1] }

// forget takes all other authorities back.
func (p *papers) forget() { p.believed = []*authority{p.signs} }

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "chaos"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key, block("CERTIFICATE", der)}, err
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// write gives each replica who is believed, and a certificate by who signs now.
// Files are replaced as a whole, as those who rotate certificates do.
func (p *papers) write(replicas []*replica) error { return p.writeUntil(replicas, papersLast) }

// papersLast is longer than a run.
const papersLast = 24 * time.Hour

// writeUntil writes certificates that run out after a while.
func (p *papers) writeUntil(replicas []*replica, good time.Duration) error {
	var ca bytes.Buffer
	for _, a := range p.believed {
		ca.Write(a.pem)
	}
	for _, r := range replicas {
		cert, key, err := p.signs.leaf(r.name, good)
		if err != nil {
			return fmt.Errorf("sign a certificate for %s: %w", r.name, err)
		}
		// The key goes last: until it fits the certificate the pair isn't taken.
		for _, f := range []struct {
			name string
			text []byte
		}{{"ca.pem", ca.Bytes()}, {"cert.pem", cert}, {"key.pem", key}} {
			path := filepath.Join(r.dir, f.name)
			if err := os.WriteFile(path+".new", f.text, 0o600); err != nil {
				return err
			}
			if err := os.Rename(path+".new", path); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *authority) leaf(name string, good time.Duration) (cert, key []byte, err error) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{{Scheme: "rhizome", Host: clusterName}}, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(good),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, own.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(own)
	return block("CERTIFICATE", der), block("PRIVATE KEY", private), err
}
