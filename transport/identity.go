package transport

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/url"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// Lifetimes of a leaf certificate. It begins in the past, so that a peer whose
// clock is behind takes it too.
const (
	leafBefore = 24 * time.Hour
	leafAfter  = 7 * 24 * time.Hour
)

// identity is what a replica shows and whom it believes.
type identity interface {
	// certificate returns what to show at a time.
	certificate(now time.Time) (*tls.Certificate, error)
	// roots returns the authorities that are believed.
	roots() *x509.CertPool
	// resetKey returns the key of stateless resets for an address: the same
	// before and after a restart, so that peers learn of one at once; another
	// for each address, so that no replica can be made to sign for another.
	resetKey(addr string) (quic.StatelessResetKey, error)
}

// newIdentity returns what cfg describes. problem hears of files that can't be
// read again; what was read before stays in force.
func newIdentity(cfg Config, boot string, problem func(error)) (identity, error) {
	if len(cfg.Secrets) > 0 {
		return newSecretIdentity(cfg, boot)
	}
	return newFileIdentity(cfg.TLS, problem)
}

// secretIdentity derives the authorities from the shared secrets and signs the
// replica's own certificate with the first of them.
type secretIdentity struct {
	secret string
	uri    *url.URL
	signer ed25519.PrivateKey
	ca     *x509.Certificate
	pool   *x509.CertPool

	mu   sync.Mutex
	leaf *tls.Certificate
	half time.Time // the leaf's renewal is due
}

func newSecretIdentity(cfg Config, boot string) (*secretIdentity, error) {
	id := &secretIdentity{
		secret: cfg.Secrets[0],
		uri:    &url.URL{Scheme: uriScheme, Host: cfg.Cluster, Path: "/" + boot},
		pool:   x509.NewCertPool(),
	}
	for i, s := range cfg.Secrets {
		key, ca, err := authority(s)
		if err != nil {
			return nil, fmt.Errorf("derive the mesh's authority from secret %d: %w", i, err)
		}
		if i == 0 {
			id.signer, id.ca = key, ca
		}
		id.pool.AddCert(ca)
	}
	return id, nil
}

// authority derives a certificate authority from a secret: the same, byte for
// byte, on every replica.
func authority(secret string) (ed25519.PrivateKey, *x509.Certificate, error) {
	seed, err := hkdf.Key(sha256.New, []byte(secret), nil, "rhizome mesh ca v1", ed25519.SeedSize)
	if err != nil {
		return nil, nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	name := sha256.Sum256(key.Public().(ed25519.PublicKey))
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: fmt.Sprintf("rhizome mesh %x", name[:8])},
		NotBefore:             time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
		SubjectKeyId:          name[:20],
	}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	ca, err := x509.ParseCertificate(der)
	return key, ca, err
}

func (id *secretIdentity) roots() *x509.CertPool { return id.pool }

func (id *secretIdentity) resetKey(addr string) (k quic.StatelessResetKey, err error) {
	return resetKey([]byte(id.secret), addr)
}

func resetKey(secret []byte, addr string) (k quic.StatelessResetKey, err error) {
	b, err := hkdf.Key(sha256.New, secret, nil, "rhizome mesh reset v1 "+addr, len(k))
	if err != nil {
		return k, fmt.Errorf("derive the stateless reset key: %w", err)
	}
	return quic.StatelessResetKey(b), nil
}

// certificate returns the replica's leaf, a new one from half of its life on.
// Connections that stand keep the one they began with.
func (id *secretIdentity) certificate(now time.Time) (*tls.Certificate, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.leaf != nil && now.Before(id.half) && now.After(id.leaf.Leaf.NotBefore) {
		return id.leaf, nil
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key for the mesh certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number for the mesh certificate: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(2)),
		Subject:      pkix.Name{CommonName: "rhizome replica"},
		URIs:         []*url.URL{id.uri},
		NotBefore:    now.Add(-leafBefore),
		NotAfter:     now.Add(leafAfter),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, id.ca, public, id.signer)
	if err != nil {
		return nil, fmt.Errorf("sign the mesh certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back the mesh certificate: %w", err)
	}
	id.leaf = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf}
	id.half = now.Add(leafAfter / 2)
	return id.leaf, nil
}
