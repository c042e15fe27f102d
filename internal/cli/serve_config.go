package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// notInServerConfig are the flags of serve that make no sense in its configuration.
var notInServerConfig = []string{"share", "config", "check-config", "invite", "name", "help"}

// load reads a server's configuration: the flags of serve by their names, shares and clients. Flags that are on the command line, or
// else in the environment, take precedence.
func (f *serveFlags) load(flags *pflag.FlagSet, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return usageError("", "read the configuration: %w", err)
	}
	file, err := parseYAML(path, text)
	if err != nil {
		return err
	}
	r := &serverReader{configReader: configReader{path: path}, flags: flags, f: f}
	var body ast.Node
	for i, document := range file.Docs {
		switch {
		case document.Body == nil:
		case i > 0:
			return r.fault(document.Body, "a second document")
		default:
			body = document.Body
		}
	}
	if body == nil {
		return usageError("", "%s: it is empty: expected at least shares", path)
	}
	if err := r.top(body); err != nil {
		return err
	}
	if len(f.opt.Shares) == 0 {
		return usageError("", "%s: there are no shares: nothing to offer", path)
	}
	return nil
}

// serverReader reads a server's configuration into serveFlags.
type serverReader struct {
	configReader
	flags *pflag.FlagSet
	f     *serveFlags
}

// keys are the readers of a mapping's values by their keys.
type keys map[string]func(key, value ast.Node) error

// mapping reads a mapping, in which other is asked for keys that are not in known; it tells whether it knows one. A nil other knows none.
func (r *serverReader) mapping(n ast.Node, of string, known keys, other func(key, value ast.Node) (bool, error)) error {
	mapping, ok := n.(ast.MapNode)
	if !ok {
		return r.fault(n, "expected a mapping for %s", of)
	}
	seen := map[string]bool{}
	for entries := mapping.MapRange(); entries.Next(); {
		key, value := entries.Key(), entries.Value()
		name := key.GetToken().Value
		if seen[name] {
			return r.fault(key, "%q is there twice", name)
		}
		seen[name] = true
		if read := known[name]; read != nil {
			if err := read(key, value); err != nil {
				return err
			}
			continue
		}
		found := false
		if other != nil {
			var err error
			if found, err = other(key, value); err != nil {
				return err
			}
		}
		if !found {
			names := make([]string, 0, len(known))
			for k := range known {
				names = append(names, k)
			}
			slices.Sort(names)
			return r.fault(key, "%q is no setting of %s: expected %s", name, of, strings.Join(names, ", "))
		}
	}
	return nil
}

// parsedKey reads one value.
func parsedKey[T any](r *serverReader, to *T, parse func(string) (T, error)) func(key, value ast.Node) error {
	return func(key, value ast.Node) error {
		text, err := r.scalar(value)
		if err != nil {
			return err
		}
		v, err := parse(text)
		if err != nil {
			return r.fault(value, "%s: %w", key.GetToken().Value, err)
		}
		*to = v
		return nil
	}
}

// listKey reads one value or a list of them.
func listKey[T any](r *serverReader, to *[]T, parse func(string) (T, error)) func(key, value ast.Node) error {
	return func(key, value ast.Node) error {
		items := []ast.Node{value}
		if list, ok := value.(*ast.SequenceNode); ok {
			items = list.Values
		}
		for _, item := range items {
			var v T
			if err := parsedKey(r, &v, parse)(key, item); err != nil {
				return err
			}
			*to = append(*to, v)
		}
		return nil
	}
}

func (r *serverReader) top(n ast.Node) error {
	var clients ast.Node // read when shares and CAs are known
	known := keys{
		"shares":  func(_, value ast.Node) error { return r.shares(value) },
		"clients": func(_, value ast.Node) error { clients = value; return nil },
		"tls":     func(_, value ast.Node) error { return r.tls(value) },
	}
	r.flags.VisitAll(func(flag *pflag.Flag) {
		if slices.Contains(notInServerConfig, flag.Name) {
			return
		}
		known[flag.Name] = func(key, value ast.Node) error {
			values, err := r.values(flag, value)
			if err != nil || flag.Changed {
				return err
			}
			if _, ok := fromEnvironment(flag.Name); ok {
				return nil
			}
			for i, v := range values {
				if err := flag.Value.Set(v); err != nil {
					at := value
					if list, ok := value.(*ast.SequenceNode); ok {
						at = list.Values[i]
					}
					return r.fault(at, "%s: %w", flag.Name, flagProblem(flag, v, err))
				}
			}
			return nil
		}
	})
	if err := r.mapping(n, "the server", known, nil); err != nil {
		return err
	}
	if clients == nil {
		return nil
	}
	return r.clients(clients)
}

func (r *serverReader) shares(n ast.Node) error {
	return r.mapping(n, "shares", keys{}, func(key, value ast.Node) (bool, error) {
		s := fxfer.Share{Name: key.GetToken().Value, Rights: identity.Read | identity.Write}
		err := r.mapping(value, fmt.Sprintf("share %q", s.Name), keys{
			"dir":         parsedKey(r, &s.Dir, r.dir),
			"rights":      parsedKey(r, &s.Rights, identity.ParseRights),
			"allow":       listKey(r, &s.Allow, parsePrefix),
			"rate-limit":  parsedKey(r, &s.RateLimit, parseLimit),
			"keep":        parsedKey(r, &s.Keep, snapshot.ParseKeep),
			"quota":       parsedKey(r, &s.Quota, parseQuota),
			"quota-files": parsedKey(r, &s.QuotaFiles, parseFiles),
		}, nil)
		if err != nil {
			return true, err
		}
		if s.Dir == "" {
			return true, r.fault(key, "share %q has no dir: expected dir: FOLDER", s.Name)
		}
		if err := r.f.addShare(s); err != nil {
			return true, r.at(key, err)
		}
		return true, nil
	})
}

// tls reads the files of certificates, and looks what is in them.
func (r *serverReader) tls(n ast.Node) error {
	t := &r.f.opt.TLS
	known, at := keys{}, map[string]ast.Node{}
	for name, to := range map[string]*string{"cert": &t.Cert, "key": &t.Key, "client-ca": &t.ClientCA, "client-crl": &t.ClientCRL} {
		known[name] = func(key, value ast.Node) error {
			parse := r.dir
			if text, _ := r.scalar(value); name == "client-ca" && text == fxfer.SystemCA {
				parse = parseFile
			}
			err := parsedKey(r, to, parse)(key, value)
			at[*to] = key
			return err
		}
	}
	if err := r.mapping(n, "tls", known, nil); err != nil {
		return err
	}
	if file, err := t.Check(); err != nil {
		return r.at(at[file], err)
	}
	return nil
}

// dir makes a path absolute: a relative one is from the configuration's folder.
func (r *serverReader) dir(s string) (string, error) {
	if s == "" {
		return "", errors.New("expected a path")
	}
	if !filepath.IsAbs(s) {
		s = filepath.Join(filepath.Dir(r.path), s)
	}
	return filepath.Abs(s)
}

func (r *serverReader) clients(n ast.Node) error {
	byID := map[string]string{}
	return r.mapping(n, "clients", keys{}, func(key, value ast.Node) (bool, error) {
		c := fxfer.Admission{Name: key.GetToken().Value}
		err := r.mapping(value, fmt.Sprintf("client %q", c.Name), keys{
			"key":          parsedKey(r, &c.Key, parsePin),
			"name":         parsedKey(r, &c.Certificate, parseClientName),
			"rights":       func(key, value ast.Node) error { return r.rights(&c, key, value) },
			"allow":        listKey(r, &c.Allow, parsePrefix),
			"rate-limit":   parsedKey(r, &c.RateLimit, parseLimit),
			"max-sessions": parsedKey(r, &c.MaxSessions, parseCount),
		}, nil)
		id := c.Key + c.Certificate
		switch {
		case err != nil:
			return true, err
		case id == "":
			return true, r.fault(key, "client %q has no key: expected key: ed25519:…, as `fxfer key` prints it there, or the name in its certificate", c.Name)
		case c.Key != "" && c.Certificate != "":
			return true, r.fault(key, "client %q has both a key and a name: expected one of them", c.Name)
		case c.Certificate != "" && r.f.opt.TLS.ClientCA == "":
			return true, r.fault(key, "client %q has the name in its certificate, and nobody vouches for it: expected client-ca in tls", c.Name)
		case byID[id] != "":
			return true, r.fault(key, "client %q has the key or name of %q", c.Name, byID[id])
		}
		byID[id] = c.Name
		r.f.opt.Clients = append(r.f.opt.Clients, c)
		return true, nil
	})
}

// parseClientName reads the name in a certificate, or "*" for any.
func parseClientName(s string) (string, error) {
	if s == "*" {
		return s, nil
	}
	id, err := identity.ParseName(s)
	return string(id), err
}

// rights reads rights on all shares, or a mapping of shares.
func (r *serverReader) rights(c *fxfer.Admission, key, value ast.Node) error {
	c.Rights = map[string]fxfer.Rights{}
	if _, ok := value.(ast.MapNode); !ok {
		var all fxfer.Rights
		err := parsedKey(r, &all, identity.ParseRights)(key, value)
		c.Rights[identity.AllShares] = all
		return err
	}
	return r.mapping(value, "rights", keys{}, func(share, value ast.Node) (bool, error) {
		name := share.GetToken().Value
		if name != identity.AllShares && !slices.ContainsFunc(r.f.opt.Shares, func(s fxfer.Share) bool { return s.Name == name }) {
			return true, r.fault(share, "there is no share %q: expected one of shares, or \"*\"", name)
		}
		var rights fxfer.Rights
		err := parsedKey(r, &rights, identity.ParseRights)(share, value)
		c.Rights[name] = rights
		return true, err
	})
}

// at says where a problem is that has a kind of its own.
func (r *serverReader) at(n ast.Node, err error) error {
	var known *fxfer.Error
	if !errors.As(err, &known) {
		return r.fault(n, "%w", err)
	}
	return &fxfer.Error{Kind: known.Kind, Err: fmt.Errorf("%s:%d: %w", r.path, n.GetToken().Position.Line, known.Err), Remedy: ""}
}

// parsePrefix reads an address or a range of them.
func parsePrefix(s string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		if p != p.Masked() {
			return p, fmt.Errorf("%q has bits behind the prefix: expected %s, or %s alone", s, p.Masked(), p.Addr())
		}
		return p, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q is neither an address nor a range such as 192.0.2.0/24 or 2001:db8::/32", s)
	}
	return a.Unmap().Prefix(a.Unmap().BitLen())
}

// parseQuota reads a size that is more than nothing, or none.
func parseQuota(s string) (int64, error) {
	if s == "none" {
		return 0, nil
	}
	n, err := parseSize(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w, or none", err)
	case n == 0:
		return 0, fmt.Errorf("%q leaves no room: expected more, or none", s)
	}
	return n, nil
}

func parseFiles(s string) (int64, error) {
	if s == "none" {
		return 0, nil
	}
	n, err := parseCount(s)
	if err != nil {
		return 0, fmt.Errorf("%w, nor none", err)
	}
	return int64(n), nil
}

// parsedList is a flag that can be repeated and whose text is parsed. It satisfies pflag.Value and pflag.SliceValue.
type parsedList[T any] struct {
	kind  string
	texts []string
	value *[]T
	parse func(string) (T, error)
}

func (p *parsedList[T]) String() string     { return strings.Join(p.texts, ",") }
func (p *parsedList[T]) Type() string       { return p.kind }
func (p *parsedList[T]) GetSlice() []string { return p.texts }

func (p *parsedList[T]) Set(s string) error {
	v, err := p.parse(s)
	if err == nil {
		p.texts, *p.value = append(p.texts, s), append(*p.value, v)
	}
	return err
}

func (p *parsedList[T]) Append(s string) error { return p.Set(s) }

func (p *parsedList[T]) Replace(all []string) error {
	p.texts, *p.value = nil, nil
	for _, s := range all {
		if err := p.Set(s); err != nil {
			return err
		}
	}
	return nil
}

// again makes the flags anew: those of the command line and the environment as they are, those of the configuration as it is now.
func (f *serveFlags) again(flags *pflag.FlagSet) (*serveFlags, error) {
	fresh := new(serveFlags)
	set := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	fresh.add(set)
	var err error
	flags.VisitAll(func(x *pflag.Flag) {
		if !x.Changed || set.Lookup(x.Name) == nil || err != nil {
			return
		}
		values := []string{x.Value.String()}
		if list, ok := x.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			if err == nil {
				err = set.Set(x.Name, v) // also marks it as changed
			}
		}
	})
	if err == nil {
		err = applyEnvironment(set)
	}
	if err == nil {
		err = fresh.load(set, f.config)
	}
	return fresh, err
}

// applyEnvironment gives flags that are not on the command line their values from the environment.
func applyEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(x *pflag.Flag) {
		if err != nil || x.Changed || !isSetting(x) {
			return
		}
		if s, ok := fromEnvironment(x.Name); ok {
			err = s.apply(x)
		}
	})
	return err
}
