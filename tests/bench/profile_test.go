package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParsePerf(t *testing.T) {
	t.Parallel()
	samples := parsePerf("fxfer  4242    1003009 \n" +
		"\tffffffff81b6ab30 _copy_from_iter\n" +
		"\tffffffff81f0f2d5 tcp_sendmsg_locked\n" +
		"\t          4a1b2e internal/runtime/syscall/linux.Syscall6\n" +
		"\n" +
		"kworker/0:1-events   17       2000 \n" +
		"\tffffffff8158a51e generic_perform_write\n\n" +
		"a line of another kind\n\n")
	require.Equal(t, []sample{
		{"fxfer", 4242, 1003009, []string{"_copy_from_iter", "tcp_sendmsg_locked", "internal/runtime/syscall/linux.Syscall6"}},
		{"kworker/0:1-events", 17, 2000, []string{"generic_perform_write"}},
	}, samples)
}

func TestStepOf(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		want  step
		stack []string
	}{
		{stepCopyIn, []string{"_copy_from_iter", "tcp_sendmsg_locked", "tcp_sendmsg", "sock_write_iter", "vfs_write"}},
		{stepStack, []string{"tcp_write_xmit", "tcp_sendmsg_locked", "tcp_sendmsg", "sock_write_iter", "vfs_write"}},
		{stepStack, []string{"tcp_v4_rcv", "net_rx_action", "handle_softirqs", "shmem_file_read_iter", "vfs_read"}},
		{stepCopyOut, []string{"_copy_to_iter", "__skb_datagram_iter", "tcp_recvmsg_locked", "sock_read_iter", "vfs_read"}},
		{stepRead, []string{"_copy_to_iter", "copy_page_to_iter", "shmem_file_read_iter", "vfs_read", "__x64_sys_pread64"}},
		{stepWrite, []string{"copy_folio_from_iter_atomic", "generic_perform_write", "vfs_write"}},
		{stepDigest, []string{"github.com/fxfer/fxfer/internal/digest.chunks16", "github.com/fxfer/fxfer/internal/transfer.(*carrier).run"}},
		{stepSeal, []string{"github.com/fxfer/fxfer/internal/transport/tlsrecord/vaesgcm.seal.abi0"}},
		{stepSeal, []string{"crypto/internal/fips140/aes/gcm.gcmAesEnc"}},
		{stepOpen, []string{"crypto/internal/fips140/aes/gcm.(*GCM).Open"}},
		{stepOpen, []string{"vaesgcm.sealBatches.abi0", "vaesgcm.(*key).narrow", "vaesgcm.vectorGCM.Open"}},
		{stepRest, []string{"do_sys_openat2", "syscall.openat", "os.(*Root).OpenFile"}},
		{stepGarbage, []string{"runtime.scanObject", "runtime.gcDrain", "runtime.gcBgMarkWorker"}},
		{stepWake, []string{"__schedule", "schedule", "do_epoll_wait"}},
		{stepWake, []string{"finish_task_switch.isra.0", "__schedule", "sk_wait_data", "tcp_recvmsg_locked", "vfs_read"}},
		{stepRest, nil},
	} {
		require.Equal(t, stepNames[x.want], stepNames[stepOf(x.stack)], x.stack)
	}
}

func TestDistribute(t *testing.T) {
	t.Parallel()
	samples := []sample{
		{"fxfer", 1, 1, []string{"vfs_read"}}, {"fxfer", 1, 3, []string{"vfs_write"}}, {"fxfer", 2, 100, []string{"vfs_write"}},
	}
	of := func(pid int) func(*sample) bool { return func(s *sample) bool { return s.pid == pid } }
	require.Equal(t, costs{stepRead: 0.5, stepWrite: 1.5}, distribute(samples, of(1), 2))
	require.Equal(t, costs{}, distribute(samples, of(3), 2))
}
