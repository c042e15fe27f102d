package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/identity"
)

const settingsHelp = `Flags can also be set in the environment (--sock-buf as FXFER_SOCK_BUF) and in
config.yaml, for all commands or for one. The command line takes precedence,
then the environment. For example:

  max-streams: 16
  send:
    rate-limit: 200mbit`

const configName = "config.yaml"

// settable marks the commands whose flags are settings.
const settable = "settable"

// addSettings makes the flags of c settings: it must be called when c has them all.
func addSettings(c *cobra.Command) {
	c.Annotations = map[string]string{settable: "true"}
	c.Flags().String("config", "", "`file` to read settings from, instead of config.yaml")
}

// isSetting reports whether a flag can be set outside of the command line's arguments and of the configuration itself.
func isSetting(f *pflag.Flag) bool { return f.Name != "help" && f.Name != "config" }

// applySettings gives the flags of c that are not on the command line their values from the environment and the
// configuration file. Flags named in except keep theirs. It leaves Changed false: that means the command line.
func applySettings(c *cobra.Command, except ...string) error {
	file, err := loadConfig(c)
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

// setting is the text of a flag's value, or of several, and where it stands.
type setting struct {
	values []string
	where  string
}

func (s setting) apply(f *pflag.Flag) error {
	for _, v := range s.values {
		if err := f.Value.Set(v); err != nil {
			return usageError("", "%s: %w", s.where, flagProblem(f, v, err))
		}
	}
	return nil
}

// fromEnvironment returns the value of a flag's variable. Several values of a flag are one a line.
func fromEnvironment(flag string) (setting, bool) {
	name := "FXFER_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	text := os.Getenv(name)
	return setting{strings.Split(strings.TrimSuffix(text, "\n"), "\n"), name}, text != ""
}

// config is a configuration file: settings by command, "" for all, and flag.
type config map[string]map[string]setting

func (c config) find(command, flag string) (setting, bool) {
	s, ok := c[command][flag]
	if !ok {
		s, ok = c[""][flag]
	}
	return s, ok
}

// loadConfig reads the file named by --config or FXFER_CONFIG, or config.yaml of the user if there is one.
func loadConfig(c *cobra.Command) (config, error) {
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
	case err != nil:
		return nil, usageError("", "read the configuration: %w", err)
	}
	return parseConfig(path, text, c.Root().Commands())
}

// parseConfig reads the text of a configuration file. Whatever is not a flag of a settable command is refused.
func parseConfig(path string, text []byte, commands []*cobra.Command) (config, error) {
	file, err := parseYAML(path, text)
	if err != nil {
		return nil, err
	}
	r := configReader{path: path, known: map[string]*pflag.FlagSet{}}
	for _, c := range commands {
		if c.Annotations[settable] != "" {
			r.known[c.Name()] = c.Flags()
		}
	}
	result := config{}
	for i, document := range file.Docs {
		switch {
		case document.Body == nil:
		case i > 0:
			return nil, r.fault(document.Body, "a second document")
		default:
			if err := r.section(result, "", document.Body); err != nil {
				return nil, err
			}
		}
	}
	return result, nil
}

func parseYAML(path string, text []byte) (*ast.File, error) {
	file, err := parser.ParseBytes(text, 0)
	var syntax yaml.Error
	switch {
	case errors.As(err, &syntax) && syntax.GetToken() != nil:
		return nil, usageError("", "%s:%d: %s", path, syntax.GetToken().Position.Line, syntax.GetMessage())
	case err != nil:
		return nil, usageError("", "%s: %w", path, err)
	}
	return file, nil
}

type configReader struct {
	path  string
	known map[string]*pflag.FlagSet // by command
}

func (r *configReader) fault(n ast.Node, format string, args ...any) error {
	return usageError("", "%s:%d: %w", r.path, n.GetToken().Position.Line, fmt.Errorf(format, args...))
}

// section reads the mapping of a command, or the outermost one, in which commands have sections.
func (r *configReader) section(result config, command string, n ast.Node) error {
	mapping, ok := n.(ast.MapNode)
	if !ok {
		return r.fault(n, "expected settings such as \"max-streams: 16\"")
	}
	result[command] = map[string]setting{}
	for entries := mapping.MapRange(); entries.Next(); {
		key, value := entries.Key(), entries.Value()
		name := key.GetToken().Value
		if command == "" && r.known[name] != nil {
			if err := r.section(result, name, value); err != nil {
				return err
			}
			continue
		}
		flag := r.flag(command, name)
		if flag == nil {
			return r.unknown(command, key, name)
		}
		values, err := r.values(flag, value)
		if err != nil {
			return err
		}
		result[command][name] = setting{values, fmt.Sprintf("%s:%d: %s", r.path, key.GetToken().Position.Line, name)}
	}
	return nil
}

// flag returns the flag of a command, or of any if command is "".
func (r *configReader) flag(command, name string) *pflag.Flag {
	for c, flags := range r.known {
		if f := flags.Lookup(name); f != nil && isSetting(f) && (command == "" || command == c) {
			return f
		}
	}
	return nil
}

func (r *configReader) unknown(command string, key ast.Node, name string) error {
	if command != "" {
		return r.fault(key, "%q is not a flag of %s", name, command)
	}
	return r.fault(key, "%q is neither a flag nor a command that has some", name)
}

// values returns the text of a scalar or, for a flag that can be repeated, of a list of them.
func (r *configReader) values(f *pflag.Flag, n ast.Node) ([]string, error) {
	_, repeatable := f.Value.(pflag.SliceValue)
	list, isList := n.(*ast.SequenceNode)
	if !isList || !repeatable {
		text, err := r.scalar(n)
		return []string{text}, err
	}
	var values []string
	for _, item := range list.Values {
		text, err := r.scalar(item)
		if err != nil {
			return nil, err
		}
		values = append(values, text)
	}
	return values, nil
}

func (r *configReader) scalar(n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	}
	return "", r.fault(n, "expected one value")
}
