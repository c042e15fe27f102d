package option

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/cli/exit"
)

// testCommands returns a root command whose subcommands have settings.
func testCommands() (root, send, serve *cobra.Command) {
	root = &cobra.Command{Use: "fxfer"}
	send = &cobra.Command{Use: "send", Run: func(*cobra.Command, []string) {}}
	var n int
	var rate int64
	var pin string
	Add(send.Flags(), &n, "streams", "n", Auto, "", ParseAutoCount)
	Add(send.Flags(), &n, "max-streams", "n", "16", "", ParseCount)
	Add(send.Flags(), &rate, "rate-limit", "rate", "none", "", ParseLimit)
	Add(send.Flags(), &pin, "pin", "key", "", "", ParsePin)
	send.Flags().Bool("quiet", false, "")
	send.Flags().Bool("json", false, "")
	AddSettings(send)
	serve = &cobra.Command{Use: "serve", Run: func(*cobra.Command, []string) {}}
	serve.Flags().StringArray("share", nil, "")
	serve.Flags().String("listen", ":7433", "")
	AddSettings(serve)
	root.AddCommand(send, serve, &cobra.Command{Use: "version"})
	root.SetErr(io.Discard)
	return root, send, serve
}

func TestSettingsPrecedence(t *testing.T) {
	const file = `
max-streams: 3 # of all
rate-limit: 200mbit
send:
  max-streams: 4
  quiet: true
`
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		want map[string]string
	}{
		"config": {nil, nil, map[string]string{"max-streams": "4", "rate-limit": "200mbit", "quiet": "true", "streams": "auto"}},
		"environment": {nil, map[string]string{"FXFER_MAX_STREAMS": "5", "FXFER_QUIET": "false", "FXFER_JSON": ""},
			map[string]string{"max-streams": "5", "rate-limit": "200mbit", "quiet": "false", "json": "false"}},
		"command line": {[]string{"--max-streams=6", "--rate-limit", "none"}, map[string]string{"FXFER_MAX_STREAMS": "5", "FXFER_RATE_LIMIT": "nonsense"},
			map[string]string{"max-streams": "6", "rate-limit": "none"}},
		"not flags": {nil, map[string]string{"FXFER_HELP": "true", "FXFER_LAB_LEFT": "10.0.0.1"}, map[string]string{"help": "false"}},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("FXFER_HOME", home)
			require.NoError(t, os.WriteFile(filepath.Join(home, "config.yaml"), []byte(file), 0o600))
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			root, send, _ := testCommands()
			send.PreRunE = func(c *cobra.Command, _ []string) error { return ApplySettings(c) }
			root.SetArgs(append([]string{"send"}, c.args...))
			require.NoError(t, root.Execute())
			for flag, want := range c.want {
				require.Equal(t, want, send.Flags().Lookup(flag).Value.String(), flag)
			}
		})
	}
}

func TestSettingsLists(t *testing.T) {
	for name, c := range map[string]struct {
		file, env string
		except    []string
		want      []string
	}{
		"config":      {"share: [a=/a, 'b=/b:ro']", "", nil, []string{"a=/a", "b=/b:ro"}},
		"one":         {"serve:\n  share: a=/a", "", nil, []string{"a=/a"}},
		"environment": {"share: [a=/a]", "c=/c\nd=/d\n", nil, []string{"c=/c", "d=/d"}},
		"not asked":   {"share: [a=/a]", "c=/c", []string{"share"}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("FXFER_HOME", home)
			t.Setenv("FXFER_SHARE", c.env)
			require.NoError(t, os.WriteFile(filepath.Join(home, "config.yaml"), []byte(c.file), 0o600))
			_, _, serve := testCommands()
			require.NoError(t, ApplySettings(serve, c.except...))
			got, err := serve.Flags().GetStringArray("share")
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestSettingsFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("FXFER_HOME", dir)
	for name, streams := range map[string]string{"config.yaml": "1", "env.yaml": "2", "flag.yaml": "3"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("streams: "+streams), 0o600))
	}
	streams := func() string {
		t.Helper()
		_, send, _ := testCommands()
		require.NoError(t, send.Flags().Set("config", os.Getenv("TEST_CONFIG")))
		require.NoError(t, ApplySettings(send))
		return send.Flags().Lookup("streams").Value.String()
	}
	require.Equal(t, "1", streams())
	t.Setenv("FXFER_CONFIG", filepath.Join(dir, "env.yaml"))
	require.Equal(t, "2", streams())
	t.Setenv("TEST_CONFIG", filepath.Join(dir, "flag.yaml"))
	require.Equal(t, "3", streams())

	_, send, _ := testCommands()
	require.NoError(t, send.Flags().Set("config", filepath.Join(dir, "missing.yaml")))
	require.ErrorContains(t, ApplySettings(send), "missing.yaml")
}

func TestSettingsRefuse(t *testing.T) {
	for file, want := range map[string]string{
		"streams: 4\nstrems: 5":              `c.yaml:2: "strems" is neither a flag nor a command with flags`,
		"send:\n  listen: :1":                `c.yaml:2: "listen" is not a flag of send`,
		"version:\n  x: 1":                   `c.yaml:1: "version" is neither`,
		"help: true":                         `c.yaml:1: "help" is neither`,
		"config: x":                          `c.yaml:1: "config" is neither`,
		"send:\n  serve:\n    listen: :1":    `c.yaml:2: "serve" is not a flag of send`,
		"send: 4":                            `c.yaml:1: expected settings`,
		"- streams":                          `c.yaml:1: expected settings`,
		"just text":                          `c.yaml:1: expected settings`,
		"streams: [1, 2]":                    `c.yaml:1: expected one value`,
		"pin:":                               `c.yaml:1: expected one value`,
		"share: [{a: b}]":                    `c.yaml:1: expected one value`,
		"\n\nstreams: many":                  `c.yaml:3: streams: "many" is not a number`,
		"quiet: maybe":                       `c.yaml:1: quiet: "maybe" is neither true nor false`,
		"streams: 1\nstreams: 2":             `c.yaml:2: the key "streams" is there already, in line 1`,
		"streams: 1\n---\nstreams: 2":        `c.yaml:3: a second document`,
		"streams: 1\n  x: [":                 `c.yaml:1: `,
		"send:\n  rate-limit: \x1b[31mred\n": `c.yaml:2: `,
	} {
		path := filepath.Join(t.TempDir(), "c.yaml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		_, send, _ := testCommands()
		require.NoError(t, send.Flags().Set("config", path))
		err := ApplySettings(send)
		require.ErrorContains(t, err, want, file)
		_, code := exit.Classify(err)
		require.Equal(t, 2, code, file)
	}
}

func TestEmptyConfig(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "send: {}\n"} {
		root, _, _ := testCommands()
		_, err := parseSettings("c.yaml", []byte(text), root.Commands())
		require.NoError(t, err, text)
	}
}
