package state

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestWhatIsSavedIsLoaded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		d := Dir{Path: filepath.Join(dir, "deeper", "still"), MaxBytes: 1 << 20}
		if got, _, err := d.Load(); err != nil || got != nil {
			rt.Fatalf("of nothing: %v, %v", got, err)
		}
		for range rapid.IntRange(1, 3).Draw(rt, "times") {
			var sections []Section
			for range rapid.IntRange(0, 4).Draw(rt, "sections") {
				sections = append(sections, Section{rapid.StringN(0, 10, maxNameBytes).Draw(rt, "name"), rapid.SliceOf(rapid.Byte()).Draw(rt, "data")})
			}
			if err := d.Save(sections); err != nil {
				rt.Fatal(err)
			}
			got, at, err := d.Load()
			if err != nil || len(got) != len(sections) || at.IsZero() {
				rt.Fatalf("%v, %v at %v", got, err, at)
			}
			for i := range got {
				if got[i].Name != sections[i].Name || !bytes.Equal(got[i].Data, sections[i].Data) {
					rt.Fatalf("%v, want %v", got[i], sections[i])
				}
			}
		}
		if files, _ := os.ReadDir(d.Path); len(files) != 1 {
			rt.Fatalf("%d files", len(files))
		}
	})
}

// A file that was cut short or changed anywhere is set aside, and the next Save
// works.
func TestDamagedFilesAreSetAside(t *testing.T) {
	whole := Encode([]Section{{"a", []byte("12345")}, {"b", nil}})
	files := map[string][]byte{"empty": {}, "foreign": []byte("#!/bin/sh\n"), "longer": append(bytes.Clone(whole), 0)}
	for i := range whole {
		changed := bytes.Clone(whole)
		changed[i] ^= 0x40
		files["changed at "+string(rune('0'+i%10))+strings.Repeat("x", i/10)] = changed
		files["cut at "+string(rune('0'+i%10))+strings.Repeat("x", i/10)] = whole[:i]
	}
	for name, b := range files {
		d := Dir{Path: t.TempDir(), MaxBytes: 1 << 20}
		file := filepath.Join(d.Path, fileName)
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		got, _, err := d.Load()
		if !errors.Is(err, ErrDamaged) || got != nil {
			t.Fatalf("%s: %v, %v", name, got, err)
		}
		if kept, err := os.ReadFile(filepath.Join(d.Path, asideName)); err != nil || !bytes.Equal(kept, b) {
			t.Fatalf("%s: not set aside: %v", name, err)
		}
		if _, _, err := d.Load(); err != nil {
			t.Fatalf("%s: the second time: %v", name, err)
		}
		if err := d.Save(nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStatesAreBounded(t *testing.T) {
	d := Dir{Path: t.TempDir(), MaxBytes: 1000}
	if err := d.Save([]Section{{"a", make([]byte, 100)}}); err != nil {
		t.Fatal(err)
	}
	if err := d.Save([]Section{{"a", make([]byte, 1000)}}); err == nil {
		t.Error("saved more than may be")
	}
	if got, _, err := d.Load(); err != nil || len(got) != 1 {
		t.Errorf("the one before is gone: %v, %v", got, err)
	}
	d.MaxBytes = 50
	if _, _, err := d.Load(); !errors.Is(err, ErrDamaged) {
		t.Errorf("loaded more than may be: %v", err)
	}
}

// Two that save at the same time leave one whole file.
func TestSavesDoNotMix(t *testing.T) {
	d := Dir{Path: t.TempDir(), MaxBytes: 1 << 20}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 10 {
				if err := d.Save([]Section{{"a", bytes.Repeat([]byte{byte(i)}, 1000*(i+1))}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, _, err := d.Load()
	if err != nil || len(got) != 1 || len(got[0].Data) != 1000*(int(got[0].Data[0])+1) {
		t.Errorf("%v", err)
	}
}

func TestSaveWhereNobodyMay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (Dir{Path: filepath.Join(file, "dir"), MaxBytes: 1000}).Save(nil); err == nil {
		t.Error("saved below a file")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(nil))
	f.Add(Encode([]Section{{"learned", []byte("abc")}, {"", nil}}))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		sections, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(Encode(sections), b) {
			t.Fatal("what was read is not what was written")
		}
	})
}
