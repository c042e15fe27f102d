package config

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// parse reads a text by a schema with a number, a list of numbers, and a mapping with free keys.
func parse(text string) (number int, list []int, names map[string]string, found bool, err error) {
	names = map[string]string{}
	found, err = Parse("c.yaml", []byte(text), func(n Node) {
		n.Object("the file",
			Scalar("number", &number, strconv.Atoi),
			List("list", &list, strconv.Atoi),
			Inner("names", func(n Node) {
				for _, e := range n.Entries("names and values") {
					names[e.Name], _ = e.Value.Text()
				}
			}))
	})
	return number, list, names, found, err
}

func TestParse(t *testing.T) {
	number, list, names, found, err := parse("names: {a: b, c: 1.5}\nlist: [1, 2]\nnumber: 7\n")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, 7, number)
	require.Equal(t, []int{1, 2}, list)
	require.Equal(t, map[string]string{"a": "b", "c": "1.5"}, names)

	_, list, _, _, err = parse("list: 3")
	require.NoError(t, err)
	require.Equal(t, []int{3}, list, "one value is a list of one")

	for _, text := range []string{"", "# nothing\n", "---\n"} {
		_, _, _, found, err = parse(text)
		require.NoError(t, err)
		require.False(t, found, "%q", text)
	}
}

func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		"nubmer: 1":                      `c.yaml:1: unknown key "nubmer" of the file: expected one of number, list, names`,
		"\nnumber: many":                 `c.yaml:2: number: strconv.Atoi: parsing "many": invalid syntax`,
		"list:\n- 1\n- x":                `c.yaml:3: list: strconv.Atoi: parsing "x": invalid syntax`,
		"number: [1]":                    `c.yaml:1: expected one value`,
		"names: 3":                       `c.yaml:1: expected names and values`,
		"a:\n\tb: 1":                     `c.yaml:2: YAML does not allow a tab for indentation: use spaces`,
		"- 1":                            `c.yaml:1: the file must have keys of its own: some of number, list, names`,
		"number: 1\n---\nnumber: 2":      `c.yaml:3: a second document`,
		"number: 1\nnumber: 2":           `c.yaml:2: the key "number" is there already, in line 1`,
		"number: x\nnumber: 2\nother: 1": `c.yaml:1: number: strconv.Atoi: parsing "x": invalid syntax (and 2 more)`,
		"names: {a: b, c: d, a: e}":      `c.yaml:1: the key "a" is there already, in line 1`,
		"names: {a: &x {}, b: *x}":       `c.yaml:1: expected one value (and 1 more)`,
		"names: 3\nnumber: x\nother: 1":  `c.yaml:1: expected names and values (and 2 more)`,
	} {
		_, _, _, _, err := parse(text)
		require.EqualError(t, err, want, "%q", text)
	}
}

// TestFaultsByLine: fields are read in the order of the schema, and faults are ordered by line.
func TestFaultsByLine(t *testing.T) {
	_, _, _, _, err := parse("names: 3\nlist: x\nnumber: y")
	var faults Faults
	require.ErrorAs(t, err, &faults)
	lines := []int{}
	for _, f := range faults {
		lines = append(lines, f.Line)
	}
	require.Equal(t, []int{1, 2, 3}, lines)
}
