// Package option is how commands read what users ask for: flags, arguments, the environment and config.yaml.
package option

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/cli/exit"
)

// NeedSubcommand is what a command does that has only subcommands.
func NeedSubcommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	hint := ""
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("did you mean `%s %s`?", c.CommandPath(), near[0])
	}
	return exit.Usage(hint, "there is no command %q", args[0])
}

// Error puts what the flag parser found into our words.
func Error(c *cobra.Command, err error) error {
	var missing *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case errors.As(err, &missing) && missing.GetSpecifiedShortnames() == "":
		hint := ""
		if near := nearestFlag(c.Flags(), missing.GetSpecifiedName()); near != "" {
			hint = "did you mean --" + near + "?"
		}
		return exit.Usage(hint, "there is no flag --%s", missing.GetSpecifiedName())
	case errors.As(err, &invalid):
		return exit.Usage("", "--%s: %w", invalid.GetFlag().Name, Problem(invalid.GetFlag(), invalid.GetValue(), errors.Unwrap(err)))
	}
	return exit.Usage("", "%w", err)
}

// Problem says what is wrong with the value of a flag.
func Problem(f *pflag.Flag, value string, err error) error {
	if f.Value.Type() == "bool" {
		return fmt.Errorf("%q is neither true nor false", value)
	}
	return err
}

// nearestFlag returns the flag whose name needs the fewest changes to become name, if these are few.
func nearestFlag(flags *pflag.FlagSet, name string) string {
	nearest, least := "", 3
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		d := distance(f.Name, name)
		if strings.HasPrefix(f.Name, name) {
			d = min(d, 2)
		}
		if d < least {
			nearest, least = f.Name, d
		}
	})
	return nearest
}

// distance is Levenshtein's: how many insertions, deletions and replacements of bytes lead from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// Auto is what leaves a setting to fxfer.
const Auto = "auto"

// parsed is a flag whose text is parsed when it is set. It satisfies pflag.Value.
type parsed[T any] struct {
	kind  string // what usage calls the value
	text  string
	value *T
	parse func(string) (T, error)
}

func (p *parsed[T]) String() string { return p.text }
func (p *parsed[T]) Type() string   { return p.kind }

func (p *parsed[T]) Set(s string) error {
	v, err := p.parse(s)
	if err == nil {
		p.text, *p.value = s, v
	}
	return err
}

// Add adds a flag. Usage shows kind, what the value is, and text, which stands for the value that is there already.
func Add[T any](flags *pflag.FlagSet, value *T, name, kind, text, usage string, parse func(string) (T, error)) {
	flags.Var(&parsed[T]{kind, text, value, parse}, name, usage)
}

// AddList adds a flag that can be repeated.
func AddList[T any](flags *pflag.FlagSet, values *[]T, name, kind, usage string, parse func(string) (T, error)) {
	flags.Var(&list[T]{kind: kind, value: values, parse: parse}, name, usage)
}

// list is a flag that can be repeated and whose text is parsed. It satisfies pflag.Value and pflag.SliceValue.
type list[T any] struct {
	kind  string
	texts []string
	value *[]T
	parse func(string) (T, error)
}

func (p *list[T]) String() string     { return strings.Join(p.texts, ",") }
func (p *list[T]) Type() string       { return p.kind }
func (p *list[T]) GetSlice() []string { return p.texts }

func (p *list[T]) Set(s string) error {
	v, err := p.parse(s)
	if err == nil {
		p.texts, *p.value = append(p.texts, s), append(*p.value, v)
	}
	return err
}

func (p *list[T]) Append(s string) error { return p.Set(s) }

func (p *list[T]) Replace(all []string) error {
	p.texts, *p.value = nil, nil
	for _, s := range all {
		if err := p.Set(s); err != nil {
			return err
		}
	}
	return nil
}

// GroupKey marks the flags of a group in help.
const GroupKey = "group"

// Group gives the flags that add adds a title in help.
func Group(flags *pflag.FlagSet, title string, add func()) {
	add()
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Annotations[GroupKey] == nil {
			_ = flags.SetAnnotation(f.Name, GroupKey, []string{title}) // it exists
		}
	})
}

// GroupedUsage shows the usage of a command whose flags have groups. Those that have none come last.
func GroupedUsage(c *cobra.Command) error {
	w := c.OutOrStderr()
	fmt.Fprintf(w, "Usage:\n  %s\n\nExamples:\n%s\n", c.UseLine(), c.Example)
	var titles []string
	groups := map[string]*pflag.FlagSet{}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		title := "Other flags"
		if named := f.Annotations[GroupKey]; named != nil {
			title = named[0]
		}
		if groups[title] == nil {
			groups[title] = pflag.NewFlagSet(title, pflag.ContinueOnError)
			groups[title].SortFlags = false
			titles = append(titles, title)
		}
		groups[title].AddFlag(f)
	})
	for _, title := range titles {
		fmt.Fprintf(w, "\n%s:\n%s", title, groups[title].FlagUsages())
	}
	return nil
}
