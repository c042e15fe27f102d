package session

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// ParsePattern parses a URL whose path may have patterns: * stands for any characters of a name, ?
// for one, and [a-z] for one of these. A character that is written as an escape, such as %2A, stands
// for itself. It returns the URL up to the first element with a pattern, and that element and those
// after it in the form of path.Match. Without a pattern there are no elements.
func ParsePattern(s string) (u URL, elements []string, err error) {
	if !IsURL(s) {
		u, err = ParseURL(s)
		return u, nil, err
	}
	authority, rest, _ := strings.Cut(s[len(urlScheme):], "/")
	share, below, _ := strings.Cut(rest, "/")
	parts := strings.Split(below, "/")
	first := 0
	for first < len(parts) && !strings.ContainsAny(parts[first], "*?[") {
		first++
	}
	base := s
	if first < len(parts) {
		base = s[:len(urlScheme)] + authority + "/" + share + "/" + strings.Join(parts[:first], "/")
	}
	if u, err = ParseURL(base); err != nil || first == len(parts) {
		return u, nil, err
	}
	u.TrailingSlash = strings.HasSuffix(below, "/")
	for _, part := range parts[first:] {
		if part == "" {
			continue
		}
		element, err := patternOf(part)
		if err != nil {
			return URL{}, nil, Usage("", "%w", err)
		}
		elements = append(elements, element)
	}
	return u, elements, nil
}

// patternOf returns an element of a URL's path in the form of path.Match.
func patternOf(part string) (string, error) {
	var b strings.Builder
	for left := part; left != ""; {
		plain, rest := left, ""
		if i := strings.IndexAny(left, "*?[]"); i > 0 {
			plain, rest = left[:i], left[i:]
		} else if i == 0 {
			b.WriteByte(left[0])
			left = left[1:]
			continue
		}
		text, err := unescape(plain)
		if err != nil {
			return "", err
		}
		for _, c := range []byte(text) {
			if strings.IndexByte(`*?[]\`, c) >= 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
		left = rest
	}
	element := b.String()
	switch {
	case element == "." || element == "..":
		return "", fmt.Errorf("%q in the path is refused: name the place itself", element)
	case strings.ContainsAny(element, "/\x00"):
		return "", errors.New("a name can't hold a slash or a NUL")
	}
	if _, err := path.Match(element, ""); err != nil {
		return "", fmt.Errorf("the pattern %q is not complete: write [ as %%5B if it belongs to a name", shorten(part))
	}
	return element, nil
}

// MatchName reports whether a name fits an element from ParsePattern. Patterns do not stand for a dot
// at the beginning of a name, as in shells.
func MatchName(element, name string) bool {
	if strings.HasPrefix(name, ".") && !strings.HasPrefix(element, ".") && !strings.HasPrefix(element, `\.`) {
		return false
	}
	fits, err := path.Match(element, name)
	return err == nil && fits
}
