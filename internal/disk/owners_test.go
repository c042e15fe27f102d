package disk

import (
	"os"
	"os/user"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOwnerNames(t *testing.T) {
	const nobodys = 4_000_000_123
	require.Empty(t, UserName(nobodys))
	require.Empty(t, GroupName(nobodys))
	for _, name := range []string{"", "no such name, surely", "12", "a:b", "x\ny"} {
		_, ok := LookupUser(name)
		require.False(t, ok, "%q", name)
		_, ok = LookupGroup(name)
		require.False(t, ok, "%q", name)
	}
	if os.PathSeparator != '/' {
		return
	}
	me, err := user.Current()
	require.NoError(t, err)
	for range 2 {
		uid, ok := LookupUser(me.Username)
		require.True(t, ok)
		require.Equal(t, me.Uid, strconv.FormatUint(uint64(uid), 10))
		require.Equal(t, me.Username, UserName(uid))
	}
	group, err := user.LookupGroupId(me.Gid)
	if err != nil {
		t.Skip(err)
	}
	gid, ok := LookupGroup(group.Name)
	require.True(t, ok)
	require.Equal(t, me.Gid, strconv.FormatUint(uint64(gid), 10))
	require.Equal(t, group.Name, GroupName(gid))
}

func TestMemoIsBounded(t *testing.T) {
	finds := 0
	m := memo[int, int]{find: func(i int) int { finds++; return -i }}
	for i := range 2 * maxMemo {
		require.Equal(t, -i, m.get(i))
		require.Equal(t, -i, m.get(i))
		require.LessOrEqual(t, len(m.known), maxMemo)
	}
	require.Equal(t, 2*maxMemo, finds)
	for range 3 {
		for _, i := range []int{2*maxMemo - 1, 2*maxMemo - 2} {
			require.Equal(t, -i, m.get(i))
		}
	}
	require.Equal(t, 2*maxMemo, finds, "in turn, they are remembered, too")
}
