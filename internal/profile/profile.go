// Package profile keeps settings of the network under names, as fxfer tune finds them, so that
// transfers and jobs can use them.
package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/fxfer/fxfer/internal/config"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Profile is a set of options of transfers. Zero fields are automatic.
type Profile struct {
	Streams    int
	Congestion string
	SockBuf    int // bytes
	Transport  fxfer.Transport
	Priority   fxfer.Priority
}

const (
	folder = "profiles"
	suffix = ".yaml"
)

// nameForm matches names that every system accepts as file names.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// ParseName checks the name of a profile.
func ParseName(s string) (string, error) {
	if !nameForm.MatchString(s) {
		return "", fmt.Errorf("%q is not the name of a profile: expected letters, digits, - and _, at most 63", s)
	}
	return s, nil
}

func path(home, name string) string { return filepath.Join(home, folder, name+suffix) }

// Names returns the names of the profiles in fxfer's folder home, sorted.
func Names(home string) (names []string) {
	entries, _ := os.ReadDir(filepath.Join(home, folder)) // what can't be read is not offered
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), suffix); ok && nameForm.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

// Load reads a profile from fxfer's folder home. Its errors are usage errors.
func Load(home, name string) (*Profile, error) {
	file := path(home, name)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		only := ""
		if all := Names(home); len(all) > 0 {
			only = ", only " + strings.Join(all, ", ")
		}
		return nil, usage(fmt.Errorf("there is no profile %q%s: `fxfer tune --save %s URL` makes it", name, only, name))
	}
	if err != nil {
		return nil, usage(fmt.Errorf("profile %q: %w", name, err))
	}
	p := &Profile{}
	if _, err := config.Parse(file, text, func(n config.Node) { n.Object("a profile", p.fields()...) }); err != nil {
		return nil, usage(err)
	}
	return p, nil
}

func usage(err error) error { return &fxfer.Error{Kind: fxfer.KindUsage, Err: err} }

func (p *Profile) fields() []config.Field {
	return []config.Field{
		config.Scalar("streams", &p.Streams, positive),
		config.Scalar("congestion", &p.Congestion, func(s string) (string, error) { return s, nil }),
		config.Scalar("sock-buf", &p.SockBuf, positive),
		config.Scalar("transport", &p.Transport, func(s string) (fxfer.Transport, error) { return fxfer.Transport(s), nil }),
		config.Scalar("priority", &p.Priority, func(s string) (fxfer.Priority, error) { return fxfer.Priority(s), nil }),
	}
}

func positive(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 30)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a number from 1 up", s)
	}
	return int(n), nil
}

// Save writes a profile, and replaces one of the same name. The note becomes a comment of one line.
func (p *Profile) Save(home, name, note string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n", note)
	for _, f := range []struct {
		key   string
		set   bool
		value any
	}{
		{"streams", p.Streams > 0, p.Streams}, {"congestion", p.Congestion != "", p.Congestion}, {"sock-buf", p.SockBuf > 0, p.SockBuf},
		{"transport", p.Transport != "", p.Transport}, {"priority", p.Priority != "", p.Priority},
	} {
		if f.set {
			fmt.Fprintf(&text, "%s: %v\n", f.key, f.value)
		}
	}
	file := path(home, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text.String()), 0o600)
}

// Apply sets options that a profile has. It leaves those for which chosen is true: the user has
// chosen them. chosen gets the keys of the file, which are the names of flags.
func (p *Profile) Apply(opt *fxfer.Options, chosen func(key string) bool) {
	set := func(key string, on bool, apply func()) {
		if on && !chosen(key) {
			apply()
		}
	}
	set("streams", p.Streams > 0, func() { opt.Streams, opt.MaxStreams = p.Streams, 0 })
	set("transport", p.Transport != "", func() { opt.Transport = p.Transport })
	set("priority", p.Priority != "", func() { opt.Priority = p.Priority })
	if opt.Transport != fxfer.TransportQUIC { // which has none of these
		set("congestion", p.Congestion != "", func() { opt.Congestion = p.Congestion })
		set("sock-buf", p.SockBuf > 0, func() { opt.SockBuf = p.SockBuf })
	}
}
