package session

import (
	"slices"
	"strings"
	"testing"

	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// TestHostileSelection makes filters of what a client might ask for.
func TestHostileSelection(t *testing.T) {
	for _, s := range []wire.Select{
		{Rules: []string{"["}}, {Rules: []string{""}}, {Rules: []string{"a\x00"}}, {Rules: []string{strings.Repeat("a", 5000)}}, {MaxSize: -1},
	} {
		_, err := FilterOf(&s)
		require.Error(t, err)
	}
}

func TestRequestLength(t *testing.T) {
	m := wire.Hello{Select: wire.Select{Rules: slices.Repeat([]string{"*.o"}, wire.MaxStrings)}}
	require.NoError(t, CheckHello(&m))
	m.Select.Rules = append(m.Select.Rules, "x")
	require.ErrorContains(t, CheckHello(&m), "1025 rules")
	m.Select.Rules = []string{strings.Repeat("x", wire.MaxFirstMessage-helloRoom)}
	require.ErrorContains(t, CheckHello(&m), "the request is too long")
	require.Equal(t, KindUsage, KindOf(CheckHello(&m)))
}
