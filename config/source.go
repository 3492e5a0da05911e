package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Source is where a configuration comes from. Each part takes precedence over
// those before it: defaults, the file, the environment, the flags.
type Source struct {
	// File is the document's name; empty for none.
	File string
	// Env is the environment as os.Environ returns it. Every variable that
	// begins with RHIZOME_ must name a setting.
	Env []string
	// Flags are what the command line says of settings.
	Flags []Flag
	// OtherEnv names variables that begin with RHIZOME_ and are no settings; a
	// name that ends in _ stands for all that begin with it.
	OtherEnv []string
	// EnvAliases are other names of variables, with the settings they name.
	EnvAliases map[string]string
}

// Flag is a setting given on the command line: several values make a list.
type Flag struct {
	Name   string // as typed, "--grace"
	Path   string // the setting's, "grace"
	Values []string
}

// Loaded is a checked configuration and where each of its values came from.
type Loaded struct {
	Config Config
	// Hash is that of what is in force, secrets included: equal hashes are equal
	// settings, and another hash tells that a rotated secret was taken up. It
	// gives no secret away: see secretRounds.
	Hash string
	// Files are those that were read: the document and what file: named; Print is
	// their Fingerprint as they were then.
	Files []string
	Print string

	origins map[string]origin
	excerpt func(Origin) string
}

// loading is a Loaded on its way.
type loading struct {
	cfg      Config
	v, def   reflect.Value // of cfg, and of the defaults
	origins  map[string]origin
	problems []Problem
	unread   []string // keys of values that could not be read
	files    []string
	print    print
	env      map[string]string
	excerpt  func(Origin) string
}

// Load reads and checks everything. The error is an *[Error] that tells all
// problems at once.
func (s Source) Load() (*Loaded, error) {
	return s.load(func(l *loading) {
		if s.File == "" {
			return
		}
		src, err := l.read(s.File)
		if err != nil {
			l.problems = append(l.problems, Problem{Origin: Origin{From: FromFile, Name: s.File}, Text: err.Error()})
			return
		}
		l.parseFile(s.File, src)
	})
}

// load is Load with the document's reading as an argument.
func (s Source) load(document func(*loading)) (*Loaded, error) {
	def := Default()
	l := &loading{cfg: Default(), origins: make(map[string]origin), env: environment(s.Env), excerpt: func(Origin) string { return "" }}
	l.v, l.def = reflect.ValueOf(&l.cfg).Elem(), reflect.ValueOf(&def).Elem()
	document(l)
	settings := make(map[string]setting)
	for _, f := range schema() {
		settings[f.path] = f
	}
	s.readEnv(l, settings)
	for _, f := range s.Flags {
		l.override(settings[f.Path], Origin{From: FromFlag, Name: f.Name}, f.Values)
	}
	for i := range l.problems {
		l.unread = append(l.unread, l.problems[i].Key)
	}
	l.cfg.Gateway = l.cfg.Gateway.WithDefaults()
	l.cfg.validate(l.invalid)
	if len(l.problems) > 0 {
		err := &Error{Problems: l.problems, Files: l.files, Print: l.print.sum()}
		err.finish()
		return nil, err
	}
	loaded := &Loaded{Config: l.cfg, Files: l.files, Print: l.print.sum(), origins: l.origins, excerpt: l.excerpt}
	hash, err := loaded.hash()
	if err != nil {
		return nil, err
	}
	loaded.Hash = hash
	return loaded, nil
}

// environment returns the variables that are ours, the last of equal names.
func environment(env []string) map[string]string {
	m := make(map[string]string)
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		m[name] = value
	}
	return m
}

// serviceLink matches the variables that Kubernetes adds to a pod for each
// service of its namespace, such as one called rhizome.
var serviceLink = regexp.MustCompile(`^RHIZOME_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// readEnv takes the overrides from the environment, and reports variables that
// look like one and are none.
func (s Source) readEnv(l *loading, settings map[string]setting) {
	byName := make(map[string]setting, len(settings))
	for path, f := range settings {
		byName[envName(path)] = f
	}
	for alias, path := range s.EnvAliases {
		byName[alias] = settings[path]
	}
	names := make([]string, 0, len(l.env))
	for name := range l.env {
		other := func(o string) bool { return name == o || strings.HasSuffix(o, "_") && strings.HasPrefix(name, o) }
		if strings.HasPrefix(name, envPrefix) && !slices.ContainsFunc(s.OtherEnv, other) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { // aliases first, so that the setting's own name wins
		return cmp.Or(cmp.Compare(len(s.EnvAliases[b]), len(s.EnvAliases[a])), cmp.Compare(a, b))
	})
	for _, name := range names {
		f, known := byName[name]
		switch {
		case known && f.typ.Kind() == reflect.Slice && !strings.HasPrefix(strings.TrimSpace(l.env[name]), "["):
			l.override(f, Origin{From: FromEnv, Name: name}, strings.Fields(l.env[name]))
		case known:
			l.override(f, Origin{From: FromEnv, Name: name}, []string{l.env[name]})
		case !serviceLink.MatchString(name):
			text := "no setting has this name"
			if near := suggest(name, slices.Sorted(maps.Keys(byName))); near != "" {
				text += ": did you mean " + near + "?"
			}
			l.problems = append(l.problems, Problem{Origin: Origin{From: FromEnv, Name: name}, Text: text})
		}
	}
}

// problemKey is the setting that a Validate's message begins with, below its
// section: "admin.listen is …", "keys[0]: …", `models["m"]: …`.
var problemKey = regexp.MustCompile(`^([a-z][a-z0-9_.]*(?:\[(?:\d+|"(?:[^"\\]|\\.)*")\])?)(?::? )`)

// invalid reports what a section's Validate says, where the value is.
func (l *loading) invalid(section string, err error) {
	if err == nil {
		return
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			l.invalid(section, e)
		}
		return
	}
	text, at := err.Error(), section
	if m := problemKey.FindStringSubmatch(text); m != nil {
		if here := join(section, m[1]); l.known(here) {
			at, text = here, strings.TrimPrefix(text[len(m[1]):], ":")
			text = strings.TrimSpace(text)
		}
	}
	for _, key := range l.unread { // has been told: this is but what follows from it
		if key == at || strings.HasPrefix(key, at+".") || strings.HasPrefix(key, at+"[") {
			return
		}
	}
	o := l.nearest(at)
	l.problems = append(l.problems, Problem{Origin: o, Key: at, Text: text, excerpt: l.excerpt(o)})
}

// nearest is where a path was written, or else the list or section around it.
func (l *loading) nearest(path string) Origin {
	for path != "" {
		if o, ok := l.origins[path]; ok {
			return o.Origin
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return Origin{}
}

// known reports whether a path names a setting, an item of one, or a section.
func (l *loading) known(path string) bool {
	if _, ok := l.origins[path]; ok {
		return true
	}
	return slices.ContainsFunc(schema(), func(s setting) bool { return s.path == path })
}

// References to secrets, and how large one may be.
const (
	fileRef        = "file:"
	envRef         = "env:"
	maxSecretBytes = 64 << 10
)

// secret returns what a secret's text stands for: the content of a file (less
// the line break at its end), a variable, or itself.
func (l *loading) secret(text string) (string, error) {
	if name, ok := strings.CutPrefix(text, fileRef); ok {
		content, err := l.read(name)
		if err != nil {
			return "", err
		}
		if len(content) > maxSecretBytes {
			return "", fmt.Errorf("%s is larger than %s", name, formatBytes(maxSecretBytes))
		}
		if plain := strings.TrimRight(string(content), "\r\n"); plain != "" {
			return plain, nil
		}
		return "", fmt.Errorf("the file %s is empty", name)
	}
	if name, ok := strings.CutPrefix(text, envRef); ok {
		if plain := l.env[name]; plain != "" {
			return plain, nil
		}
		return "", fmt.Errorf("the environment variable %s is not set, or empty", name)
	}
	return text, nil
}

// read reads a file and takes note of what it held.
func (l *loading) read(name string) ([]byte, error) {
	content, err := readFile(name)
	l.files = append(l.files, name)
	l.print.add(name, content, err)
	return content, err
}

// readFile reads a file of a bearable size.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(content) > MaxFileBytes:
		return nil, fmt.Errorf("%s is larger than %s", name, formatBytes(MaxFileBytes))
	}
	return content, nil
}

// print is the state of some files, in the order in which they were read.
type print []byte

func (p *print) add(name string, content []byte, err error) {
	*p = fmt.Appendf(*p, "%q %x %v\n", name, sha256.Sum256(content), err)
}

func (p print) sum() string {
	sum := sha256.Sum256(p)
	return hex.EncodeToString(sum[:])
}

// Fingerprint tells the contents of files apart: it changes when one of them
// does, appears, goes away, or becomes another one behind a symbolic link.
func Fingerprint(files []string) string {
	var p print
	for _, name := range files {
		content, err := readFile(name)
		p.add(name, content, err)
	}
	return p.sum()
}
