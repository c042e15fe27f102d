package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

func TestKinds(t *testing.T) {
	for want, err := range map[string]error{
		"other":       errors.New("x"),
		"usage":       Usage("", "x"),
		"trust":       &wire.Error{Code: wire.CodeTrust, Remote: true},
		"unreachable": &wire.Error{Code: wire.CodeBusy, Remote: true},
		"integrity":   fmt.Errorf("f: %w", &wire.Error{Code: wire.CodeIntegrity}),
		"local disk":  fs.ErrPermission,
		"remote disk": &wire.Error{Code: wire.CodeNoSpace, Remote: true},
		"interrupted": context.Canceled,
		"partial":     &Error{Kind: KindPartial, Err: errors.New("x")},
	} {
		require.Equal(t, want, KindOf(err).String())
	}
	require.Equal(t, "kind 99", Kind(99).String())
	require.Equal(t, "kind -1", Kind(-1).String())
}
