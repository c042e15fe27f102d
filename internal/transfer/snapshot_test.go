package transfer

import (
	"errors"
	"testing"

	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

func TestGrave(t *testing.T) {
	require.True(t, isGrave(errors.New("who knows")))
	light := map[wire.Code]bool{wire.CodeSourceDisk: true, wire.CodeNotFound: true, wire.CodeChanged: true, wire.CodePath: true, wire.CodeUnsupported: true}
	for _, code := range wire.Codes() {
		require.Equal(t, !light[code], isGrave(&wire.Error{Code: code}), code)
	}
}
