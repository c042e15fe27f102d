package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/fleet"
	"github.com/fxfer/fxfer/internal/units"
)

// namedLine is a line as the flag of start has it.
type namedLine struct {
	name string
	fleet.Line
}

// parseLine reads NAME=RATE or NAME=RATE,PRIORITY.
func parseLine(s string) (l namedLine, err error) {
	name, text, ok := strings.Cut(s, "=")
	if !ok {
		return l, fmt.Errorf("%q is not like wan=1gbit or wan=1gbit,low", s)
	}
	text, priority, named := strings.Cut(text, ",")
	if l.name, err = parseLineName(name); err != nil {
		return l, err
	}
	if l.Rate, err = units.ParseRate(text); err == nil && named {
		l.Priority, err = option.ParsePriority(priority)
	}
	if err == nil && l.Rate <= 0 {
		err = errors.New("a line needs a rate")
	}
	return l, err
}

func parseLineName(s string) (string, error) {
	if !fleet.IsName(s) {
		return "", fmt.Errorf("%q is not a name of letters, digits and hyphens", s)
	}
	return s, nil
}

func newLines() *cobra.Command {
	var m member
	var asJSON bool
	c := &cobra.Command{
		Use:   "lines",
		Short: "Show lines, and what workers may use of them",
		Long: `Lines shows what the controller has given out of each line that "fleet start --line"
names. A worker without a task has no part of it. If a worker dies, its part is free
again after 5 s.`,
		Args: option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			return m.ask(c, func(ctx context.Context, x *fleet.Member) error {
				lines, err := x.Lines(ctx)
				if err != nil {
					return fmt.Errorf("the controller does not answer: %w", err)
				}
				out := c.OutOrStdout()
				rows := [][]string{{"LINE", "WORKER", "MAY USE", "OF"}}
				for _, l := range lines {
					if asJSON {
						term.JSON(out, l)
					}
					for _, worker := range slices.Sorted(maps.Keys(l.Given)) {
						rows = append(rows, []string{l.Line, term.Name(worker), units.Rate(float64(l.Given[worker])), units.Rate(float64(l.Rate))})
					}
				}
				if !asJSON {
					term.Table(out, rows)
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON line for each line")
	m.add(c)
	return c
}
