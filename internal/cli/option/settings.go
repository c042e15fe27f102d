package option

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/config"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// ApplyEnvironment sets flags from environment variables, unless they are on the command line.
func ApplyEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(x *pflag.Flag) {
		if err != nil || x.Changed || !isSetting(x) {
			return
		}
		if s, ok := fromEnvironment(x.Name); ok {
			err = s.apply(x)
		}
	})
	return err
}

// SettingsHelp is the help text about settings.
const SettingsHelp = `Flags can also be set in the environment (FXFER_SOCK_BUF for --sock-buf) and in
the file config.yaml in FXFER_HOME, for all commands or for one. The command line
takes precedence, then the environment. For example:

  max-streams: 16
  send:
    rate-limit: 200mbit`

const configName = "config.yaml"

// Settable marks commands whose flags can be set in the environment and the configuration.
const Settable = "settable"

// AddSettings makes the flags of c settings. Call it after all flags of c are added.
func AddSettings(c *cobra.Command) {
	c.Annotations = map[string]string{Settable: "true"}
	c.Flags().String("config", "", "read settings from this `file` instead of config.yaml")
}

// isSetting reports whether a flag can be set in the environment and in files. once is no setting:
// with it, serve is another command.
func isSetting(f *pflag.Flag) bool {
	return f.Name != "help" && f.Name != "config" && f.Name != "once" && !f.Hidden
}

// ApplySettings sets the flags of c that are not on the command line from the environment and the
// configuration file. It does not set the flags named in except. Changed stays false, because it
// means that a flag is on the command line.
func ApplySettings(c *cobra.Command, except ...string) error {
	file, err := loadSettings(c)
	if err != nil {
		return err
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if err != nil || f.Changed || !isSetting(f) || slices.Contains(except, f.Name) {
			return
		}
		s, ok := fromEnvironment(f.Name)
		if !ok {
			s, ok = file.find(c.Name(), f.Name)
		}
		if ok {
			err = s.apply(f)
		}
	})
	return err
}

// setting is the text of a flag's value, or of several values, and the place where it is written.
type setting struct {
	values []string
	where  string
}

func (s setting) apply(f *pflag.Flag) error {
	for _, v := range s.values {
		if err := f.Value.Set(v); err != nil {
			return exit.Usage("", "%s: %w", s.where, Problem(f, v, err))
		}
	}
	return nil
}

// InEnvironment reports whether the environment sets a flag.
func InEnvironment(flag string) bool {
	_, ok := fromEnvironment(flag)
	return ok
}

// fromEnvironment returns the value of a flag's environment variable. A variable with several
// values has one value per line.
func fromEnvironment(flag string) (setting, bool) {
	name := "FXFER_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	text := os.Getenv(name)
	return setting{strings.Split(strings.TrimSuffix(text, "\n"), "\n"), name}, text != ""
}

// sections are the settings of a file by command and flag. The command "" stands for all commands.
type sections map[string]map[string]setting

func (s sections) find(command, flag string) (setting, bool) {
	x, ok := s[command][flag]
	if !ok {
		x, ok = s[""][flag]
	}
	return x, ok
}

// loadSettings reads the file named by --config or FXFER_CONFIG, or else the user's config.yaml if
// it exists.
func loadSettings(c *cobra.Command) (sections, error) {
	path, err := c.Flags().GetString("config")
	if err != nil {
		return nil, err
	}
	if path == "" {
		path = os.Getenv("FXFER_CONFIG")
	}
	named := path != ""
	if !named {
		home, err := identity.Home()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(home, configName)
	}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		return nil, nil
	case err != nil && !named:
		return nil, exit.Usage("does the folder belong to another user? FXFER_HOME names it", "read the configuration: %w", err)
	case err != nil:
		return nil, exit.Usage("", "read the configuration: %w", err)
	}
	return parseSettings(path, text, c.Root().Commands())
}

// parseSettings reads the text of a configuration file. It accepts only flags of settable commands.
func parseSettings(path string, text []byte, commands []*cobra.Command) (sections, error) {
	r := settingsReader{known: map[string]*pflag.FlagSet{}, found: sections{}}
	for _, c := range commands {
		if c.Annotations[Settable] != "" {
			r.known[c.Name()] = c.Flags()
		}
	}
	if _, err := config.Parse(path, text, func(n config.Node) { r.section("", n) }); err != nil {
		return nil, ConfigError(err)
	}
	return r.found, nil
}

// ConfigError returns an error about the first fault in a configuration file. It is a usage error,
// unless the fault has a kind of its own.
func ConfigError(err error) error {
	var faults config.Faults
	if !errors.As(err, &faults) {
		return err
	}
	var known *fxfer.Error
	if errors.As(faults[0], &known) {
		return &fxfer.Error{Kind: known.Kind, Err: faults[0]}
	}
	return exit.Usage("", "%w", faults[0])
}

type settingsReader struct {
	known map[string]*pflag.FlagSet // by command
	found sections
}

// section reads the mapping of one command, or the outermost mapping, which also contains the
// sections of commands.
func (r *settingsReader) section(command string, n config.Node) {
	r.found[command] = map[string]setting{}
	for _, e := range n.Entries(`settings such as "max-streams: 16"`) {
		flag := r.flag(command, e.Name)
		switch {
		case command == "" && r.known[e.Name] != nil:
			r.section(e.Name, e.Value)
		case flag != nil:
			r.found[command][e.Name] = setting{texts(flag, e.Value), e.Key.Where() + ": " + e.Name}
		case command != "":
			e.Key.Fault("%q is not a flag of %s", e.Name, command)
		default:
			e.Key.Fault("%q is neither a flag nor a command with flags", e.Name)
		}
	}
}

// flag returns a flag of the command, or of any command if command is "".
func (r *settingsReader) flag(command, name string) *pflag.Flag {
	for c, flags := range r.known {
		if f := flags.Lookup(name); f != nil && isSetting(f) && (command == "" || command == c) {
			return f
		}
	}
	return nil
}

// Values returns the value of a setting. For a repeatable flag these are the items of a list.
func Values(f *pflag.Flag, n config.Node) []config.Node {
	if _, repeatable := f.Value.(pflag.SliceValue); repeatable {
		return n.Items()
	}
	return []config.Node{n}
}

func texts(f *pflag.Flag, n config.Node) (texts []string) {
	for _, value := range Values(f, n) {
		if text, ok := value.Text(); ok {
			texts = append(texts, text)
		}
	}
	return texts
}
