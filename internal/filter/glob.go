package filter

import (
	"errors"
	"fmt"
	"strings"
)

// glob matches one element of a path, byte by byte. It first compares the parts before the first
// and after the last wildcard. That decides for most names, and always for "name", "*.ext" and
// "prefix*".
type glob struct {
	head, tail string
	middle     []unit // from the first to the last wildcard, nil if there is none
	least      int    // length of the shortest name that matches
}

type unit struct {
	kind kind
	c    byte // with literal
	set  *set // with class
}

type kind uint8

const (
	literal kind = iota // the byte c
	anyByte             // ?
	class               // [...]
	star                // any number of bytes
)

func newGlob(units []unit) glob {
	g := glob{}
	first, last := len(units), len(units) // wildcards are in units[first:last]
	for i, u := range units {
		if u.kind != literal {
			first = min(first, i)
			last = i + 1
		}
		if u.kind != star {
			g.least++
		}
	}
	g.head, g.tail = text(units[:first]), text(units[last:])
	if first < len(units) {
		g.middle = units[first:last]
	}
	return g
}

// text returns the bytes of literals.
func text(units []unit) string {
	var b strings.Builder
	for _, u := range units {
		b.WriteByte(u.c)
	}
	return b.String()
}

func (g *glob) literal() bool { return g.middle == nil }

func (g *glob) match(name string) bool {
	if g.middle == nil {
		return name == g.head
	}
	if len(name) < g.least || !strings.HasPrefix(name, g.head) || !strings.HasSuffix(name, g.tail) {
		return false
	}
	return matchUnits(g.middle, name[len(g.head):len(name)-len(g.tail)])
}

// matchUnits matches all of s. When a match fails, only the last star needs another try, as in
// matchElements.
func matchUnits(units []unit, s string) bool {
	i, j := 0, 0
	retry, from := -1, 0 // the unit after the last star, and where to try it next
	for {
		switch {
		case i < len(units) && units[i].kind == star:
			if i++; i == len(units) {
				return true
			}
			retry, from = i, j
		case j == len(s):
			return i == len(units)
		case i < len(units) && units[i].accepts(s[j]):
			i++
			j++
			continue
		case retry < 0:
			return false
		default:
			from++
		}
		if u := &units[retry]; u.kind == literal {
			skip := strings.IndexByte(s[from:], u.c)
			if skip < 0 {
				return false
			}
			from += skip
		}
		i, j = retry, from
	}
}

func (u *unit) accepts(c byte) bool {
	switch u.kind {
	case literal:
		return c == u.c
	case class:
		return u.set.has(c)
	}
	return true
}

// ends returns the last bytes of all names that the glob matches.
func (g *glob) ends() set {
	var s set
	switch {
	case g.literal():
		s.add(g.head[len(g.head)-1])
	case g.tail != "":
		s.add(g.tail[len(g.tail)-1])
	default:
		switch u := g.middle[len(g.middle)-1]; u.kind {
		case class:
			s = *u.set
		default:
			s.addRange(0, 255)
		}
	}
	return s
}

// set is a set of bytes.
type set [4]uint64

func (s *set) has(c byte) bool { return s[c>>6]>>(c&63)&1 != 0 }
func (s *set) add(c byte)      { s[c>>6] |= 1 << (c & 63) }

func (s *set) addRange(first, last byte) {
	for c := int(first); c <= int(last); c++ {
		s.add(byte(c))
	}
}

// parseClass reads a class whose "[" is before pattern[i]. It returns where the pattern continues.
func parseClass(pattern string, i int) (class *set, after int, err error) {
	errOpen := errors.New(`"[" without "]"`)
	class = new(set)
	negated := i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^')
	if negated {
		i++
	}
	// next returns the byte at i, or the byte after a backslash.
	next := func() (c byte, ok bool) {
		if i < len(pattern) && pattern[i] == '\\' {
			i++
		}
		if i >= len(pattern) {
			return 0, false
		}
		c = pattern[i]
		i++
		return c, true
	}
	for first := true; ; first = false {
		if i >= len(pattern) {
			return nil, 0, errOpen
		}
		if pattern[i] == ']' && !first { // the first one is a member
			break
		}
		if strings.HasPrefix(pattern[i:], "[:") {
			length := strings.IndexByte(pattern[i+2:], ']')
			if length < 0 {
				return nil, 0, errOpen
			}
			if name, ok := strings.CutSuffix(pattern[i+2:i+2+length], ":"); ok {
				if !class.addNamed(name) {
					return nil, 0, fmt.Errorf("there is no class %q", clip(name))
				}
				i += 2 + length + 1
				continue
			}
		}
		low, ok := next()
		if !ok {
			return nil, 0, errOpen
		}
		// A hyphen makes a range unless it is the last byte of the class.
		if i+1 < len(pattern) && pattern[i] == '-' && pattern[i+1] != ']' {
			i++
			high, ok := next()
			if !ok {
				return nil, 0, errOpen
			}
			class.addRange(low, high)
			class.add(low) // as in git, even if high is less than low
			continue
		}
		class.add(low)
	}
	if negated {
		for k := range class {
			class[k] = ^class[k]
		}
	}
	class[0] &^= 1 << '/' // no class matches a slash
	if *class == (set{}) {
		return nil, 0, errors.New("the class is empty")
	}
	return class, i + 1, nil
}

// addNamed adds a POSIX class as git defines it, in ASCII. It reports whether the class exists.
func (s *set) addNamed(name string) bool {
	switch name {
	case "alnum":
		s.addNamed("alpha")
		s.addNamed("digit")
	case "alpha":
		s.addNamed("lower")
		s.addNamed("upper")
	case "blank":
		s.add(' ')
		s.add('\t')
	case "cntrl":
		s.addRange(0, 0x1f)
		s.add(0x7f)
	case "digit":
		s.addRange('0', '9')
	case "graph":
		s.addRange(0x21, 0x7e)
	case "lower":
		s.addRange('a', 'z')
	case "print":
		s.addRange(0x20, 0x7e)
	case "punct":
		s.addRange('!', '/')
		s.addRange(':', '@')
		s.addRange('[', '`')
		s.addRange('{', '~')
	case "space": // without vertical tab and form feed
		s.addNamed("blank")
		s.add('\n')
		s.add('\r')
	case "upper":
		s.addRange('A', 'Z')
	case "xdigit":
		s.addRange('0', '9')
		s.addRange('A', 'F')
		s.addRange('a', 'f')
	default:
		return false
	}
	return true
}
