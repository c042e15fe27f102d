// Package config reads YAML files. A schema says which keys a mapping may have and how the value of
// each is read. Every fault names its file and line, and reading goes on after a fault, so that a
// user sees all of them at once.
//
// The schemas of the settings, the server and the backup jobs stand beside the types that they
// fill, in internal/cli and internal/backup.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Fault is one error in a file.
type Fault struct {
	Path string
	Line int
	Err  error
}

func (f *Fault) Error() string { return fmt.Sprintf("%s:%d: %v", f.Path, f.Line, f.Err) }
func (f *Fault) Unwrap() error { return f.Err }

// Faults are all errors in a file, at least one, ordered by line.
type Faults []*Fault

func (f Faults) Error() string {
	if len(f) == 1 {
		return f[0].Error()
	}
	return fmt.Sprintf("%v (and %d more)", f[0], len(f)-1)
}

// Unwrap returns the first fault.
func (f Faults) Unwrap() error { return f[0] }

// Parse calls read with the one document of a file. It returns Faults if the text is not YAML or if
// read found faults, and nil otherwise. If the file is empty, it does not call read, and returns
// false.
func Parse(path string, text []byte, read func(Node)) (found bool, err error) {
	f := &file{path: path}
	body := f.body(text)
	if body != nil {
		read(Node{f, body})
	}
	if len(f.faults) == 0 {
		return body != nil, nil
	}
	slices.SortStableFunc(f.faults, func(a, b *Fault) int { return a.Line - b.Line })
	return body != nil, f.faults
}

// file collects the faults of one file.
type file struct {
	path   string
	faults Faults
}

func (f *file) fault(line int, err error) {
	f.faults = append(f.faults, &Fault{f.path, line, err})
}

// body returns the only document, or nil if there is none.
func (f *file) body(text []byte) (body ast.Node) {
	parsed, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey()) // Entries reports them
	var syntax yaml.Error
	switch {
	case errors.As(err, &syntax) && syntax.GetToken() != nil:
		line := syntax.GetToken().Position.Line
		if tabbed(text, line) {
			f.fault(line, errors.New("YAML does not allow a tab for indentation: use spaces"))
			return nil
		}
		f.fault(line, errors.New(syntax.GetMessage()))
		return nil
	case err != nil:
		f.fault(1, err)
		return nil
	}
	for _, document := range parsed.Docs {
		switch {
		case document.Body == nil:
		case body != nil:
			Node{f, document.Body}.Fault("a second document")
		default:
			body = document.Body
		}
	}
	return body
}

// tabbed reports whether the indentation of a line, counted from 1, contains a tab.
func tabbed(text []byte, line int) bool {
	lines := bytes.Split(text, []byte{'\n'})
	return line <= len(lines) && bytes.HasPrefix(bytes.TrimLeft(lines[line-1], " "), []byte{'\t'})
}

// Node is a key or a value of a file.
type Node struct {
	file *file
	node ast.Node
}

// Fault records an error at the node. The format is that of fmt.Errorf.
func (n Node) Fault(format string, args ...any) {
	n.file.fault(n.line(), fmt.Errorf(format, args...))
}

func (n Node) line() int { return n.node.GetToken().Position.Line }

// Where returns the node's place as "file:line".
func (n Node) Where() string { return fmt.Sprintf("%s:%d", n.file.path, n.line()) }

// String returns the node's YAML. Nodes with equal text mean the same.
func (n Node) String() string { return n.node.String() }

// Faults returns the number of faults in the whole file so far. Check values that depend on each
// other only if the number did not grow while they were read.
func (n Node) Faults() int { return len(n.file.faults) }

// Text returns a scalar as it is written. Any other node is a fault.
func (n Node) Text() (text string, ok bool) {
	switch s := n.node.(type) {
	case *ast.StringNode:
		return s.Value, true
	case *ast.LiteralNode:
		return s.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return s.GetToken().Value, true
	}
	n.Fault("expected one value")
	return "", false
}

// Items returns the items of a list. Any other node is a list with one item.
func (n Node) Items() []Node {
	list, ok := n.node.(*ast.SequenceNode)
	if !ok {
		return []Node{n}
	}
	items := make([]Node, 0, len(list.Values))
	for _, item := range list.Values {
		items = append(items, Node{n.file, item})
	}
	return items
}

// IsMapping reports whether the node is a mapping.
func (n Node) IsMapping() bool {
	_, ok := n.node.(ast.MapNode)
	return ok
}

// Len returns the number of keys of a mapping, 0 for any other node.
func (n Node) Len() (keys int) {
	if m, ok := n.node.(ast.MapNode); ok {
		for it := m.MapRange(); it.Next(); {
			keys++
		}
	}
	return keys
}

// Entry is a key of a mapping and its value.
type Entry struct {
	Name  string
	Key   Node
	Value Node
}

// Entries returns the entries of a mapping whose keys the user chooses. Any other node is a fault.
// The argument what says what was expected, such as "shares by their names".
func (n Node) Entries(what string) []Entry {
	m, ok := n.node.(ast.MapNode)
	if !ok {
		n.Fault("expected %s", what)
		return nil
	}
	var entries []Entry
	seen := map[string]int{} // line
	for it := m.MapRange(); it.Next(); {
		key := Node{n.file, it.Key()}
		e := Entry{key.node.GetToken().Value, key, Node{n.file, it.Value()}}
		if line := seen[e.Name]; line > 0 {
			key.Fault("the key %q is there already, in line %d", e.Name, line)
			continue
		}
		seen[e.Name] = key.line()
		entries = append(entries, e)
	}
	return entries
}

// Field is a key that a mapping may have, and how its value is read.
type Field struct {
	Name string
	Read func(Entry)
}

// Scalar is a field with one value. The function parse reads it, and the result goes to to.
func Scalar[T any](name string, to *T, parse func(string) (T, error)) Field {
	return Field{name, func(e Entry) {
		if v, ok := Value(e.Value, name, parse); ok {
			*to = v
		}
	}}
}

// List is a field with one value or a list of them. They replace the values in to.
func List[T any](name string, to *[]T, parse func(string) (T, error)) Field {
	return Field{name, func(e Entry) {
		*to = nil
		for _, item := range e.Value.Items() {
			if v, ok := Value(item, name, parse); ok {
				*to = append(*to, v)
			}
		}
	}}
}

// Inner is a field whose value the function read handles itself.
func Inner(name string, read func(Node)) Field {
	return Field{name, func(e Entry) { read(e.Value) }}
}

// Value reads one value with parse. Faults begin with the name of the key.
func Value[T any](n Node, name string, parse func(string) (T, error)) (v T, ok bool) {
	text, ok := n.Text()
	if !ok {
		return v, false
	}
	v, err := parse(text)
	if err != nil {
		n.Fault("%s: %w", name, err)
	}
	return v, err == nil
}

// Object is a mapping that has been read, by the names of its keys.
type Object map[string]Entry

// Has reports whether the mapping contains a key.
func (o Object) Has(name string) bool {
	_, ok := o[name]
	return ok
}

// Object reads a mapping by a schema. It reads fields in the order of the schema, whatever the
// order in the file, so a field may rely on earlier ones. Unknown keys are faults. If the node is
// not a mapping, that is a fault, and the result is nil. Messages call the mapping what.
func (n Node) Object(what string, fields ...Field) Object {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, f.Name)
	}
	expected := strings.Join(names, ", ")
	if !n.IsMapping() {
		n.Fault("%s must have keys of its own: some of %s", what, expected)
		return nil
	}
	o := Object{}
	for _, e := range n.Entries(what) {
		if !slices.Contains(names, e.Name) {
			e.Key.Fault("unknown key %q of %s: expected one of %s", e.Name, what, expected)
			continue
		}
		o[e.Name] = e
	}
	for _, f := range fields {
		if e, ok := o[f.Name]; ok {
			f.Read(e)
		}
	}
	return o
}
