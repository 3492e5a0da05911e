// Package state keeps what a process should know again after a restart in one
// file, and knows nothing about what that is.
//
// The central type is [Section], a named piece of somebody's state; start
// reading at [Dir.Save]. The file carries a version and a checksum and is
// replaced as a whole, so that a reader finds the old or the new one, never a
// half. One that is damaged or of another kind is set aside by [Dir.Load],
// never used and never in the way.
//
//	rhizome-state\n  version u32  sections u32
//	{ name length u32  name  data length u64  data }  for each section
//	SHA-256 of all that, 32 bytes
package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Section is one part of a state. Its data has a version of its own.
type Section struct {
	Name string // at most 64 bytes
	Data []byte
}

const (
	magic   = "rhizome-state\n"
	version = 1

	maxSections  = 64
	maxNameBytes = 64

	fileName  = "rhizome.state"
	asideName = "rhizome.state.damaged"
)

// ErrDamaged is wrapped by errors about a file that can't be what was saved.
var ErrDamaged = errors.New("not a whole state file of this version")

// Dir is where a state is kept.
type Dir struct {
	Path string
	// MaxBytes bounds the file.
	MaxBytes int64
}

// Encode returns the contents of a file with these sections.
func Encode(sections []Section) []byte {
	size := len(magic) + 8 + sha256.Size
	for _, s := range sections {
		size += 12 + len(s.Name) + len(s.Data)
	}
	b := make([]byte, 0, size)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(sections)))
	for _, s := range sections {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s.Name)))
		b = append(b, s.Name...)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(s.Data)))
		b = append(b, s.Data...)
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// Decode reads the contents of a file; the sections share b's memory. The error
// wraps ErrDamaged.
func Decode(b []byte) ([]Section, error) {
	bad := func(what string) ([]Section, error) { return nil, fmt.Errorf("%w: %s", ErrDamaged, what) }
	if !bytes.HasPrefix(b, []byte(magic)) || len(b) < len(magic)+8+sha256.Size {
		return bad("it does not begin as one")
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	rest := body[len(magic):]
	if v := binary.LittleEndian.Uint32(rest); v != version {
		return bad(fmt.Sprintf("its version is %d, this program's is %d", v, version))
	}
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return bad("its checksum is wrong")
	}
	n := binary.LittleEndian.Uint32(rest[4:])
	if n > maxSections {
		return bad(fmt.Sprintf("it has %d sections", n))
	}
	rest = rest[8:]
	sections := make([]Section, 0, n)
	for range n {
		if len(rest) < 4 {
			return bad("a section is cut off")
		}
		name := binary.LittleEndian.Uint32(rest)
		rest = rest[4:]
		if name > maxNameBytes || uint64(len(rest)) < uint64(name)+8 {
			return bad("a section's name is cut off")
		}
		s := Section{Name: string(rest[:name])}
		data := binary.LittleEndian.Uint64(rest[name:])
		rest = rest[name+8:]
		if uint64(len(rest)) < data {
			return bad("a section is cut off")
		}
		s.Data, rest = rest[:data:data], rest[data:]
		sections = append(sections, s)
	}
	if len(rest) > 0 {
		return bad("something follows the sections")
	}
	return sections, nil
}

// Save replaces the file: it writes another beside it, waits until that is on
// the disk, and renames it. The directory is made if it isn't there.
func (d Dir) Save(sections []Section) error {
	b := Encode(sections)
	if int64(len(b)) > d.MaxBytes {
		return fmt.Errorf("save the state in %s: it has %d bytes, at most %d are kept", d.Path, len(b), d.MaxBytes)
	}
	if err := d.replace(b); err != nil {
		return fmt.Errorf("save the state in %s: %w", d.Path, err)
	}
	return nil
}

func (d Dir) replace(b []byte) (err error) {
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(d.Path, fileName+".new-*") // readable by its owner alone
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // closed already, perhaps
			_ = os.Remove(f.Name())
		}
	}()
	slowDisk()
	if _, err := f.Write(b); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(d.Path, fileName)); err != nil {
		return err
	}
	return syncDir(d.Path)
}

// syncDir makes a rename last.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// Load returns the sections of the file and when it was saved; none and no error
// where there is no file. A file that can't be used is renamed, once, to
// rhizome.state.damaged, and the error says so. Files that a Save before a crash
// left half done are removed.
func (d Dir) Load() ([]Section, time.Time, error) {
	left, _ := filepath.Glob(filepath.Join(d.Path, fileName+".new-*")) // the pattern is good
	for _, name := range left {
		if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > leftoverAge {
			_ = os.Remove(name)
		}
	}
	name := filepath.Join(d.Path, fileName)
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, time.Time{}, nil
	case err != nil:
		return nil, time.Time{}, fmt.Errorf("load the state: %w", err)
	case !info.Mode().IsRegular() || info.Size() > d.MaxBytes:
		err = fmt.Errorf("%w: it is no file of at most %d bytes", ErrDamaged, d.MaxBytes)
		return nil, time.Time{}, d.setAside(name, err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("load the state: %w", err)
	}
	sections, err := Decode(b)
	if err != nil {
		return nil, time.Time{}, d.setAside(name, err)
	}
	return sections, info.ModTime(), nil
}

// leftoverAge is how old a file that was to become the state must be to be a
// leftover and not somebody's work.
const leftoverAge = 10 * time.Minute

func (d Dir) setAside(name string, why error) error {
	aside := filepath.Join(d.Path, asideName)
	if err := os.Rename(name, aside); err != nil {
		return fmt.Errorf("load the state from %s: %w; setting it aside: %w", name, why, err)
	}
	return fmt.Errorf("load the state from %s: %w; it is now %s", name, why, aside)
}
