package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// lookInterval is the least time between two looks at whether files changed.
const lookInterval = 5 * time.Second

// maxPEMBytes bounds one file.
const maxPEMBytes = 1 << 20

// fileIdentity reads certificates from files, and again when they change. Files
// that can't be read leave in force what was read last: a renewal that is half
// written is looked at again.
type fileIdentity struct {
	files   TLSFiles
	problem func(error)

	mu     sync.Mutex
	cert   *tls.Certificate
	pool   *x509.CertPool
	stamp  [3]fileStamp // what was read last
	looked time.Time
}

// fileStamp tells a file's versions apart.
type fileStamp struct {
	modified time.Time
	bytes    int64
}

func newFileIdentity(files TLSFiles, problem func(error)) (*fileIdentity, error) {
	id := &fileIdentity{files: files, problem: problem}
	if err := id.look(); err != nil {
		return nil, err
	}
	return id, nil
}

// look reads the files if they changed since they were read.
func (id *fileIdentity) look() error {
	var stamp [3]fileStamp
	for i, name := range []string{id.files.CA, id.files.Cert, id.files.Key} {
		info, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("read the mesh's certificates: %w", err)
		}
		stamp[i] = fileStamp{info.ModTime(), info.Size()}
	}
	if stamp == id.stamp {
		return nil
	}
	cert, pool, err := readFiles(id.files)
	if err != nil {
		return err
	}
	id.cert, id.pool, id.stamp = cert, pool, stamp
	return nil
}

func readFiles(files TLSFiles) (*tls.Certificate, *x509.CertPool, error) {
	var pem [3][]byte
	for i, name := range []string{files.CA, files.Cert, files.Key} {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, fmt.Errorf("read the mesh's certificates: %w", err)
		}
		if len(b) > maxPEMBytes {
			return nil, nil, fmt.Errorf("read the mesh's certificates: %s is larger than %d bytes", name, maxPEMBytes)
		}
		pem[i] = b
	}
	cert, err := tls.X509KeyPair(pem[1], pem[2])
	if err != nil {
		return nil, nil, fmt.Errorf("read mesh certificate %s and its key: %w", files.Cert, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem[0]) {
		return nil, nil, fmt.Errorf("read mesh authorities %s: no certificate in it", files.CA)
	}
	return &cert, pool, nil
}

// certificate looks at the files at most once per lookInterval. An error of a
// later look is not returned, since there is a certificate in force.
func (id *fileIdentity) certificate(now time.Time) (*tls.Certificate, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if d := now.Sub(id.looked); d < 0 || d >= lookInterval {
		id.looked = now
		if err := id.look(); err != nil {
			id.problem(err)
		}
	}
	return id.cert, nil
}

func (id *fileIdentity) roots() *x509.CertPool {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.pool
}

func (id *fileIdentity) resetKey(addr string) (quic.StatelessResetKey, error) {
	key, err := os.ReadFile(id.files.Key)
	if err != nil {
		return quic.StatelessResetKey{}, fmt.Errorf("derive the stateless reset key: %w", err)
	}
	if len(key) == 0 {
		return quic.StatelessResetKey{}, errors.New("derive the stateless reset key: the key file is empty")
	}
	return resetKey(key, addr)
}
