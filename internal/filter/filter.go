// Package filter selects entries of a source tree by gitignore rules, size and age. It also reads
// files of rules and lists of paths.
//
// Paths are relative to the transfer root, slash separated and clean; "." is the root itself. Paths
// and rules are bytes, not text: a name need not be UTF-8, and "?" matches one byte.
package filter

import (
	"fmt"
	"strings"
	"time"
)

// Limits of New, since rules may come from a hostile peer.
const (
	MaxRules     = 4096      // rules in a filter
	MaxRule      = 4096      // bytes in a rule
	MaxRuleBytes = 256 << 10 // bytes in all rules of a filter
)

// Options says what is selected. The zero value selects everything.
type Options struct {
	// Rules are applied in order; the last one that matches an entry decides. A rule is a pattern
	// as in gitignore(5), which excludes, or "!" and a pattern, which includes again. New takes
	// rules literally: only ReadRules handles comments, blank lines and trailing spaces.
	Rules []string
	// MaxSize excludes larger entries, in bytes. 0 is no limit.
	MaxSize int64
	// NewerThan excludes entries modified at this time or before. The zero Time is no limit.
	NewerThan time.Time
}

// Filter selects entries. It never changes, so it is safe for concurrent use. Its methods do not
// allocate memory. A nil Filter selects everything.
type Filter struct {
	rules []rule
	// byEnd holds, for each byte, the rules that can match a path with this last byte, the last
	// rule first. Most rules end in a name or an extension, so most rules are never tried on most
	// paths.
	byEnd [256][]uint16

	maxSize   int64
	newerThan time.Time
	aged      bool // newerThan is set
}

// New compiles options. Its error names the first wrong rule: a rule that is too long, exceeds a
// limit, or can never match. Git accepts rules that never match, but their author expects an
// effect.
//
// Matching a path against a rule takes at most time proportional to the product of their lengths.
func New(options Options) (*Filter, error) {
	if options.MaxSize < 0 {
		return nil, fmt.Errorf("negative size limit %d", options.MaxSize)
	}
	if len(options.Rules) > MaxRules {
		return nil, fmt.Errorf("%d rules are more than %d", len(options.Rules), MaxRules)
	}
	f := &Filter{
		rules:   make([]rule, len(options.Rules)),
		maxSize: options.MaxSize, newerThan: options.NewerThan, aged: !options.NewerThan.IsZero(),
	}
	total := 0
	for i, text := range options.Rules {
		if total += len(text); total > MaxRuleBytes {
			return nil, fmt.Errorf("rule %d %q: the rules up to here have more than %d bytes",
				i+1, clip(text), MaxRuleBytes)
		}
		r, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("rule %d %q: %w", i+1, clip(text), err)
		}
		f.rules[i] = r
	}
	for i := len(f.rules) - 1; i >= 0; i-- {
		ends := f.rules[i].last().ends()
		for c := range f.byEnd {
			if ends.has(byte(c)) {
				f.byEnd[c] = append(f.byEnd[c], uint16(i))
			}
		}
	}
	return f, nil
}

// Skip reports whether a walk skips an entry. A walk must not enter a folder that is skipped: Skip
// relies on it that no folder above path was skipped. Only rules apply to folders. size is in
// bytes; it is negative for entries without a size limit, such as symlinks. No rule matches the
// root.
func (f *Filter) Skip(path string, dir bool, size int64, mtime time.Time) bool {
	if f == nil {
		return false
	}
	if !dir {
		if f.maxSize > 0 && size > f.maxSize {
			return true
		}
		if f.aged && !mtime.After(f.newerThan) {
			return true
		}
	}
	return f.excluded(path, dir)
}

// Excluded reports whether the rules exclude path, or a folder above it. It ignores size and age.
func (f *Filter) Excluded(path string, dir bool) bool {
	if f == nil || len(f.rules) == 0 {
		return false
	}
	for i := range len(path) {
		if path[i] == '/' && f.excluded(path[:i], true) {
			return true
		}
	}
	return f.excluded(path, dir)
}

// excluded does not look at the folders above path.
func (f *Filter) excluded(path string, dir bool) bool {
	if path == "" || path == "." {
		return false
	}
	candidates := f.byEnd[path[len(path)-1]]
	if len(candidates) == 0 {
		return false
	}
	base := path[strings.LastIndexByte(path, '/')+1:]
	for _, i := range candidates {
		r := &f.rules[i]
		if (dir || !r.dirOnly) && r.match(path, base) {
			return r.exclude
		}
	}
	return false
}

// clip shortens a text that a message quotes.
func clip(s string) string {
	const most = 128
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
