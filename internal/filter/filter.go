// Package filter decides which entries of a source tree are selected: by rules in the language of gitignore, by size and
// by age. It also reads the files that hold rules or the paths to transfer.
//
// Paths are relative to the transfer root, slash separated and clean, "." being the root itself. They and the rules are
// bytes, not text: a name need not be UTF-8, and "?" stands for one byte.
package filter

import (
	"fmt"
	"strings"
	"time"
)

// Limits of what New accepts; rules may come from a hostile peer.
const (
	MaxRules     = 4096      // rules of a filter
	MaxRule      = 4096      // bytes of a rule
	MaxRuleBytes = 256 << 10 // bytes of all rules of a filter
)

// Options says what is selected. The zero value selects everything.
type Options struct {
	// Rules in order; the last one that matches an entry decides. A rule is a pattern as gitignore(5) describes it, which
	// excludes, or "!" and a pattern, which includes again. They are taken literally: comments, blank lines and trailing
	// spaces are matters of a file of rules, and ReadRules sees to them.
	Rules []string
	// MaxSize in bytes: larger entries are not selected. 0 sets no limit.
	MaxSize int64
	// NewerThan: entries modified at this time or before are not selected. The zero Time sets no limit.
	NewerThan time.Time
}

// Filter selects entries. It doesn't change, so it may be used concurrently; its methods allocate nothing. A nil Filter
// selects everything.
type Filter struct {
	rules []rule
	// For each byte, the rules that a path ending in it can match, the last one first: most rules end in a name or an
	// extension, so most never see most paths.
	byEnd [256][]uint16

	maxSize   int64
	newerThan time.Time
	aged      bool // newerThan counts
}

// New compiles options. Its error names the first rule at fault: one that is too long or too many, and one that can never
// match. Git takes the latter without a word, but whoever wrote it expects it to do something.
//
// To match a path against a rule takes a time proportional to the product of their lengths at most.
func New(options Options) (*Filter, error) {
	if options.MaxSize < 0 {
		return nil, fmt.Errorf("negative size limit %d", options.MaxSize)
	}
	if len(options.Rules) > MaxRules {
		return nil, fmt.Errorf("%d rules, more than %d", len(options.Rules), MaxRules)
	}
	f := &Filter{
		rules:   make([]rule, len(options.Rules)),
		maxSize: options.MaxSize, newerThan: options.NewerThan, aged: !options.NewerThan.IsZero(),
	}
	total := 0
	for i, text := range options.Rules {
		if total += len(text); total > MaxRuleBytes {
			return nil, fmt.Errorf("rule %d %q: more than %d bytes of rules up to here", i+1, clip(text), MaxRuleBytes)
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

// Skip reports whether a walk passes over an entry, and in a folder over all below it: the folder must not be entered,
// for Skip trusts that no folder above path was skipped. To folders only rules apply. size is in bytes, negative for
// entries to which a size limit doesn't apply, such as symlinks. No rule matches the root.
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

// Excluded reports whether the rules exclude path or a folder above it, and with it path. It knows nothing of size and
// age.
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

// excluded looks at path alone.
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

// clip shortens what a message quotes.
func clip(s string) string {
	const most = 128
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
