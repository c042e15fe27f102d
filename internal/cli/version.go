package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/option"
)

// release is the version of a published build. The linker sets it.
var release string

// version describes the build: version or commit, Go release and platform.
func version() string {
	name := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && release == "" {
		if info.Main.Version != "" {
			name = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && name == "(devel)" {
				name = s.Value
			}
		}
	}
	return fmt.Sprintf("%s %s %s/%s", cmp.Or(release, name), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  option.Exactly(0),
		Run:   func(c *cobra.Command, _ []string) { fmt.Fprintln(c.OutOrStdout(), "fxfer", version()) },
	}
}
