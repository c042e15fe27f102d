package filter

import (
	"errors"
	"fmt"
	"strings"
)

// rule is one compiled line of gitignore. It matches either the last element of a path, at any
// depth, or a whole path: lead, then elements.
type rule struct {
	exclude bool // otherwise it includes again
	dirOnly bool // matches folders only

	anchored bool
	name     glob      // if not anchored: of the last element
	lead     string    // if anchored: the elements before the first wildcard, with slashes
	elements []element // if anchored: the others; at least one, and the last is not deep
}

// element matches one element of a path or, if it is deep ("**"), any number of elements.
type element struct {
	deep bool
	glob glob
}

// parse compiles a rule. The grammar is that of gitignore(5), and git's behaviour where the manual
// says nothing.
func parse(text string) (rule, error) {
	switch {
	case len(text) > MaxRule:
		return rule{}, fmt.Errorf("longer than %d bytes", MaxRule)
	case strings.IndexByte(text, 0) >= 0:
		return rule{}, errors.New("NUL byte")
	}
	pattern, include := strings.CutPrefix(text, "!")
	pattern, dirOnly := strings.CutSuffix(pattern, "/")
	anchored := strings.Contains(pattern, "/")
	pattern = strings.TrimPrefix(pattern, "/")
	if pattern == "" {
		return rule{}, errors.New("empty pattern")
	}
	elements, err := parseElements(pattern)
	if err != nil {
		return rule{}, err
	}
	r := rule{exclude: !include, dirOnly: dirOnly}
	if !anchored || len(elements) == 2 && elements[0].deep { // **/name is the same as name
		r.name = elements[len(elements)-1].glob
		return r, nil
	}
	r.anchored = true
	for len(elements) > 1 && !elements[0].deep && elements[0].glob.literal() {
		r.lead += elements[0].glob.head + "/"
		elements = elements[1:]
	}
	r.elements = elements
	return r, nil
}

// parseElements compiles pattern element by element. The last element of the result is not deep:
// "a/**", which matches everything in a but not a itself, becomes "a/**/*".
func parseElements(pattern string) ([]element, error) {
	var (
		elements []element
		units    []unit
		run      int // number of asterisks if the element has only these, otherwise -1
	)
	end := func() error {
		if run >= 2 {
			if n := len(elements); n == 0 || !elements[n-1].deep {
				elements = append(elements, element{deep: true})
			}
		} else {
			g := newGlob(units)
			if g.literal() && (g.head == "" || g.head == "." || g.head == "..") {
				return fmt.Errorf("no path has an element %q", g.head)
			}
			elements = append(elements, element{glob: g})
		}
		units, run = nil, 0
		return nil
	}
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		if c == '*' {
			if len(units) == 0 || units[len(units)-1].kind != star {
				units = append(units, unit{kind: star})
			}
			if run >= 0 {
				run++
			}
			continue
		}
		u := unit{kind: literal, c: c}
		switch c {
		case '\\':
			if i++; i == len(pattern) {
				return nil, errors.New(`nothing follows the last "\"`)
			}
			u.c = pattern[i]
		case '?':
			u.kind = anyByte
		case '[':
			set, after, err := parseClass(pattern, i+1)
			if err != nil {
				return nil, err
			}
			u = unit{kind: class, set: set}
			i = after - 1
		}
		if u.kind == literal && u.c == '/' {
			if err := end(); err != nil {
				return nil, err
			}
			continue
		}
		units, run = append(units, u), -1
	}
	if err := end(); err != nil {
		return nil, err
	}
	if elements[len(elements)-1].deep {
		elements = append(elements, element{glob: newGlob([]unit{{kind: star}})})
	}
	return elements, nil
}

// match reports whether the rule matches a path; base is its last element.
func (r *rule) match(path, base string) bool {
	if !r.anchored {
		return r.name.match(base)
	}
	return strings.HasPrefix(path, r.lead) && r.last().match(base) &&
		matchElements(r.elements, path[len(r.lead):])
}

// matchElements matches a whole path. When a match fails, only the last "**" needs another try: an
// earlier "**" with a longer match could only leave less of the path to it.
func matchElements(elements []element, path string) bool {
	var (
		next  = elements
		retry []element // what follows the last "**", nil if there was none
		from  string    // the path for which retry was tried last
	)
	for {
		if len(next) > 0 && next[0].deep {
			next = next[1:]
			retry, from = next, path
			continue
		}
		if path == "" {
			return len(next) == 0 // a retry would have even less of the path
		}
		if len(next) > 0 {
			name, after, _ := strings.Cut(path, "/")
			if next[0].glob.match(name) {
				next, path = next[1:], after
				continue
			}
		}
		if retry == nil {
			return false
		}
		_, from, _ = strings.Cut(from, "/")
		next, path = retry, from
	}
}

// last returns the glob for the last element of a path.
func (r *rule) last() *glob {
	if r.anchored {
		return &r.elements[len(r.elements)-1].glob
	}
	return &r.name
}
