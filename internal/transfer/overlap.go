package transfer

import (
	"crypto/sha256"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// earlier finds what the roots before one of several have at the same paths of the manifest. A nil
// earlier finds nothing. One goroutine uses it.
type earlier struct {
	source *TreeSource
	first  map[string][]int // roots by the first element of As, in order
	before int              // only roots before this one count
}

func (s *TreeSource) newEarlier() *earlier {
	o := &earlier{source: s, first: make(map[string][]int)}
	for i := range s.Roots {
		element, _, _ := strings.Cut(s.Roots[i].As, "/")
		o.first[element] = append(o.first[element], i)
	}
	return o
}

// find returns the first root before the present one that sends an entry at a path of the manifest,
// nil for none.
func (o *earlier) find(as string) (*Root, disk.Meta) {
	if o == nil || o.before == 0 {
		return nil, disk.Meta{}
	}
	element, _, _ := strings.Cut(as, "/")
	roots := slices.Concat(o.first[""], o.first[element])
	slices.Sort(roots)
	for _, i := range roots {
		if i >= o.before {
			break
		}
		r := &o.source.Roots[i]
		if m, ok := o.source.sends(r, as); ok {
			return r, m
		}
	}
	return nil, disk.Meta{}
}

// sends reports whether a root sends an entry at a path of the manifest.
func (s *TreeSource) sends(r *Root, as string) (m disk.Meta, ok bool) {
	rest, ok := r.below(as)
	if !ok {
		return m, false
	}
	m, err := r.Tree.Stat(path.Join(r.Path, rest))
	if err != nil || s.leavesOut(&m, rest) || s.Filter.Excluded(path.Dir(rest), true) {
		return m, false
	}
	if !s.OneFileSystem || m.Kind == disk.Dir {
		return m, true
	}
	top, err := r.Tree.Stat(r.Path)
	return m, err == nil && top.ID.Dev == m.ID.Dev
}

// hide reports whether an entry of root r is left out, because an earlier root has one of the same
// name that is not the same file. Two folders become one. It passes to failed what would be lost.
func (o *earlier) hide(r *Root, m *disk.Meta, failed func(string, error)) bool {
	if o == nil || o.before == 0 {
		return false
	}
	as := r.manifestPath(m.Path)
	first, have := o.find(as)
	switch {
	case first == nil, have.Kind == disk.Dir && m.Kind == disk.Dir:
		return false
	case have.ID == m.ID && m.ID.Ino != 0:
		return true
	}
	failed(as, &fs.PathError{Op: "send", Path: as, Err: wire.Errorf(wire.CodeTaken,
		"two sources have this name: %s is taken, %s is left out",
		first.named(as), r.named(as))})
	return true
}

// folder returns an earlier root's folder of the same name as a folder. What is first counts.
func (o *earlier) folder(m *disk.Meta, as string) (first disk.Meta, joined bool) {
	if m.Kind != disk.Dir {
		return first, false
	}
	r, _ := o.find(as)
	if r == nil {
		return first, false
	}
	rest, _ := r.below(as)
	first, err := r.Tree.StatXattrs(path.Join(r.Path, rest))
	return first, err == nil
}

// listed are the paths of a list that were visited, with everything below them. It holds digests,
// which take less room than paths, because lists may be long.
type listed map[[16]byte]struct{}

func (l listed) add(p string) { l[keyOf(p)] = struct{}{} }

func (l listed) has(p string) bool {
	_, ok := l[keyOf(p)]
	return ok
}

// covers reports whether a path, or a folder above it, was visited.
func (l listed) covers(p string) bool {
	for ; !l.has(p); p = path.Dir(p) {
		if p == "." {
			return false
		}
	}
	return true
}

func keyOf(p string) [16]byte {
	sum := sha256.Sum256([]byte(p))
	return [16]byte(sum[:16])
}

// named returns what the user would call an entry of the manifest that is this root or below it.
func (r *Root) named(as string) string {
	rest, _ := r.below(as)
	return path.Join(r.Name, rest)
}
