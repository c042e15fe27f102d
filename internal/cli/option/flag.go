// Package option reads what users ask for: flags, arguments, environment variables and config.yaml.
package option

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/cli/exit"
)

// NeedSubcommand is the RunE of a command that only has subcommands.
func NeedSubcommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	hint := ""
	if near := nearestCommand(c, args[0]); near != "" {
		hint = fmt.Sprintf("did you mean `%s %s`?", c.CommandPath(), near)
	}
	return exit.Usage(hint, "there is no command %q", args[0])
}

// nearestCommand returns the command of c whose name is most similar to name, or "" if none is similar.
func nearestCommand(c *cobra.Command, name string) string {
	nearest, least := "", 3
	for _, sub := range c.Commands() {
		d := distance(sub.Name(), name)
		switch {
		case !sub.IsAvailableCommand(), len(name) < 2:
			continue
		case strings.HasPrefix(sub.Name(), name), slices.Contains(sub.SuggestFor, name):
			d = 0
		case 3*d > len(name) && sub.Name()[0] != name[0]: // "nope" is no "copy"
			continue
		}
		if d < least {
			nearest, least = sub.Name(), d
		}
	}
	return nearest
}

// Error turns an error of the flag parser into a usage error in fxfer's words.
func Error(c *cobra.Command, err error) error {
	var missing *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case errors.As(err, &missing):
		name, dashes := missing.GetSpecifiedName(), "--"
		if missing.GetSpecifiedShortnames() != "" {
			dashes = "-"
		}
		hint := ofCopyTool(c.Flags(), name)
		if near := nearestFlag(c.Flags(), name); hint == "" && dashes == "--" && near != "" {
			hint = "did you mean --" + near + "?"
		}
		return exit.Usage(hint, "there is no flag %s%s", dashes, name)
	case errors.As(err, &invalid):
		return exit.Usage("", "--%s: %w", invalid.GetFlag().Name, Problem(invalid.GetFlag(), invalid.GetValue(), errors.Unwrap(err)))
	}
	return exit.Usage("", "%w", err)
}

// Problem returns the error for a wrong value of a flag.
func Problem(f *pflag.Flag, value string, err error) error {
	if f.Value.Type() == "bool" {
		return fmt.Errorf("%q is neither true nor false", value)
	}
	return err
}

// nearestFlag returns the flag whose name is most similar to name, or "" if none is similar.
func nearestFlag(flags *pflag.FlagSet, name string) string {
	if name == "rate" && flags.Lookup("bandwidth") != nil { // other commands call it so
		return "bandwidth"
	}
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

// distance is the Levenshtein distance: the fewest insertions, deletions and replacements of bytes
// that turn a into b.
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

// Auto is the value of a flag that lets fxfer choose.
const Auto = "auto"

// parsed is a flag whose text is parsed when the flag is set. It implements pflag.Value.
type parsed[T any] struct {
	kind  string // what help calls the value
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

// Add adds a flag. Help shows kind as the placeholder of the value, and text as its default; text
// stands for the present value.
func Add[T any](flags *pflag.FlagSet, value *T, name, kind, text, usage string, parse func(string) (T, error)) {
	flags.Var(&parsed[T]{kind, text, value, parse}, name, usage)
}

// AddList adds a flag that can be repeated.
func AddList[T any](flags *pflag.FlagSet, values *[]T, name, kind, usage string, parse func(string) (T, error)) {
	flags.Var(&list[T]{kind: kind, value: values, parse: parse}, name, usage)
}

// list is a repeatable flag whose texts are parsed. It implements pflag.Value and pflag.SliceValue.
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

// GroupKey is the annotation that names the group of a flag in help.
const GroupKey = "group"

// Group calls add, and puts the flags that it adds into one group with a title in help.
func Group(flags *pflag.FlagSet, title string, add func()) {
	add()
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Annotations[GroupKey] == nil {
			_ = flags.SetAnnotation(f.Name, GroupKey, []string{title}) // fails only for unknown flags, and this one exists
		}
	})
}

// helpWidth is the longest line of help, in columns.
const helpWidth = 89

// WrapFlags changes cobra's template of the usage of commands so that lines of flags have at most
// helpWidth columns.
func WrapFlags(template string) string {
	return strings.ReplaceAll(template, ".FlagUsages", fmt.Sprint(".FlagUsagesWrapped ", helpWidth))
}

// GroupedUsage prints the usage of a command whose flags have groups.
func GroupedUsage(c *cobra.Command) error {
	w := c.OutOrStderr()
	fmt.Fprintf(w, "Usage:\n  %s\n\nExamples:\n%s\n", c.UseLine(), c.Example)
	for _, g := range Groups(c.LocalFlags()) {
		fmt.Fprintf(w, "\n%s:\n%s", g.Title, g.Flags.FlagUsagesWrapped(helpWidth))
	}
	return nil
}

// FlagGroup is a group of flags, as help shows them.
type FlagGroup struct {
	Title string
	Flags *pflag.FlagSet
}

// Groups returns the flags in their groups. Those without a group come last.
func Groups(flags *pflag.FlagSet) (groups []FlagGroup) {
	flags.VisitAll(func(f *pflag.Flag) {
		title := "Other flags"
		if named := f.Annotations[GroupKey]; named != nil {
			title = named[0]
		}
		i := slices.IndexFunc(groups, func(g FlagGroup) bool { return g.Title == title })
		if i < 0 {
			i = len(groups)
			groups = append(groups, FlagGroup{title, pflag.NewFlagSet(title, pflag.ContinueOnError)})
			groups[i].Flags.SortFlags = false
		}
		groups[i].Flags.AddFlag(shown(f))
	})
	return groups
}

// shown returns a flag as help shows it: --name[=kind] if the value can be left out. pflag would
// show the value that is meant then, which looks like a default.
func shown(f *pflag.Flag) *pflag.Flag {
	if f.NoOptDefVal == "" || f.Value.Type() == "bool" {
		return f
	}
	g := *f
	g.Name, g.NoOptDefVal = f.Name+"[="+f.Value.Type()+"]", ""
	g.Usage = "``" + f.Usage // the empty name replaces the kind after the flag
	return &g
}
