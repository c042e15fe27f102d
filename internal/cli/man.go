package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/fxfer/fxfer/internal/cli/option"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages",
		Long:   `Man writes a manual page for each command into the folder DIR, which it makes
if missing. SOURCE_DATE_EPOCH sets their date.`,
		Hidden: true,
		Args:   option.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write the manual pages: %w", err)
			}
			root := c.Root()
			root.DisableAutoGenTag = true
			root.Long += "\n\n" + rootHelp
			keepLines(root)
			header := &doc.GenManHeader{Section: "1", Source: "fxfer", Manual: "fxfer"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("write the manual pages: %w", err)
			}
			return nil
		},
	}
}

// keepLines indents blocks in the help of c and its subcommands deeper. The man pages are made
// through Markdown, which joins lines unless they are indented this far.
func keepLines(c *cobra.Command) {
	c.Long = strings.ReplaceAll(c.Long, "\n  ", "\n    ")
	for _, sub := range c.Commands() {
		keepLines(sub)
	}
}
