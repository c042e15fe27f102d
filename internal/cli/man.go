package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages",
		Long: `Man writes a manual page for each command into the folder DIR, which it makes
if missing. SOURCE_DATE_EPOCH sets their date.`,
		Hidden: true,
		Args:   option.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			date := time.Now()
			if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
				seconds, err := strconv.ParseInt(epoch, 10, 64)
				if err != nil {
					return exit.Usage("", "SOURCE_DATE_EPOCH: %q is not a number of seconds", epoch)
				}
				date = time.Unix(seconds, 0)
			}
			err := os.MkdirAll(args[0], 0o755)
			if err == nil {
				err = writePages(c.Root(), args[0], date.UTC().Format("Jan 2006"))
			}
			if err != nil {
				return fmt.Errorf("write the manual pages: %w", err)
			}
			return nil
		},
	}
}

// writePages writes the pages of c and of its subcommands.
func writePages(c *cobra.Command, dir, date string) error {
	name := filepath.Join(dir, pageOf(c)+".1")
	if err := os.WriteFile(name, []byte(manPage(c, date)), 0o644); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		if err := writePages(sub, dir, date); err != nil {
			return err
		}
	}
	return nil
}

// pageOf returns the name of a command's page.
func pageOf(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage returns the manual page of a command, in the macros of man(7).
func manPage(c *cobra.Command, date string) string {
	var b strings.Builder
	name := pageOf(c)
	fmt.Fprintf(&b, ".TH \"%s\" \"1\" \"%s\" \"fxfer\" \"fxfer\"\n", roff(strings.ToUpper(name)), date)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(c.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n\\fB%s\\fP\n", roff(c.UseLine()))
	text := c.Long
	if text == "" {
		text = c.Short
	}
	if c == c.Root() {
		text += "\n\n" + rootHelp
	}
	b.WriteString(".SH DESCRIPTION\n")
	writeText(&b, text)
	if c.Example != "" {
		b.WriteString(".SH EXAMPLES\n")
		writeText(&b, c.Example)
	}
	writeFlags(&b, "OPTIONS", c.NonInheritedFlags())
	writeFlags(&b, "GLOBAL OPTIONS", c.InheritedFlags())
	writeRelated(&b, c)
	return b.String()
}

// writeText writes paragraphs. Indented lines keep their breaks.
func writeText(b *strings.Builder, text string) {
	kept := false
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		indented := strings.HasPrefix(line, "  ")
		switch {
		case line == "" && kept:
			b.WriteString("\n")
			continue
		case line == "":
			b.WriteString(".PP\n")
			continue
		case indented && !kept:
			b.WriteString(".RS 4\n.nf\n")
		case kept && !indented:
			b.WriteString(".fi\n.RE\n.PP\n")
		}
		kept = indented
		b.WriteString(roff(strings.TrimPrefix(line, "  ")) + "\n")
	}
	if kept {
		b.WriteString(".fi\n.RE\n")
	}
}

// writeFlags writes flags in the groups that help shows.
func writeFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	b.WriteString(".SH " + title + "\n")
	groups := option.Groups(flags)
	for _, g := range groups {
		if len(groups) > 1 && g.Flags.HasAvailableFlags() {
			b.WriteString(".SS " + roff(g.Title) + "\n")
		}
		g.Flags.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Deprecated == "" {
				writeFlag(b, f)
			}
		})
	}
}

func writeFlag(b *strings.Builder, f *pflag.Flag) {
	kind, usage := pflag.UnquoteUsage(f)
	b.WriteString(".TP\n")
	if f.Shorthand != "" {
		fmt.Fprintf(b, "\\fB\\-%s\\fP, ", roff(f.Shorthand))
	}
	fmt.Fprintf(b, "\\fB%s\\fP", roff("--"+f.Name))
	if kind != "" {
		fmt.Fprintf(b, " \\fI%s\\fP", roff(kind))
	}
	switch f.DefValue {
	case "", "false", "0", "[]":
	default:
		usage += " (default " + f.DefValue + ")"
	}
	b.WriteString("\n" + roff(usage) + "\n")
}

// writeRelated names the pages of the commands above and below.
func writeRelated(b *strings.Builder, c *cobra.Command) {
	var pages []string
	if c.HasParent() {
		pages = append(pages, pageOf(c.Parent()))
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			pages = append(pages, pageOf(sub))
		}
	}
	for i, page := range pages {
		if i == 0 {
			b.WriteString(".SH SEE ALSO\n")
		}
		end := ",\n"
		if i == len(pages)-1 {
			end = "\n"
		}
		b.WriteString("\\fB" + roff(page) + "\\fP(1)" + end)
	}
}

// roff returns a line that roff shows as it is.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(line)
	if strings.HasPrefix(line, ".") {
		line = `\&` + line
	}
	return line
}
