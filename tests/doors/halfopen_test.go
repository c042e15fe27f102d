package doors

import (
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// TestHalfOpenDoors has strangers of 32 networks begin connections and never log in, at every door. The
// server keeps few of them, in little memory, and clients from elsewhere go on.
func TestHalfOpenDoors(t *testing.T) { // alone: it measures the heap
	s := begin(t, func(o *fxfer.ServerOptions) {
		anywhere := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		o.Doors.FTP = fxfer.FTPDoor{Addr: "127.0.0.1:0", ImplicitTLS: "127.0.0.1:0", Clear: anywhere}
		o.Doors.WebDAV.Addr = "127.0.0.1:0"
	})
	d := s.dav(t)
	works := func() {
		t.Helper()
		began := time.Now()
		data := write(t, s.share("data"), 1<<20)
		c, conn := s.dial(t, "anna")
		f, err := c.Create("/docs/sftp")
		require.NoError(t, err)
		_, err = f.Write(data)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.NoError(t, conn.Close())
		x := s.dialFTP(t).logIn("anna", true)
		up, _ := x.data("STOR /docs/ftp")
		_, err = up.Write(data)
		require.NoError(t, err)
		require.NoError(t, up.Close())
		x.expect(226)
		require.NoError(t, x.conn.Close())
		require.Contains(t, []int{201, 204}, d.anna(t, "PUT", "/docs/webdav", string(data)))
		for _, name := range []string{"sftp", "ftp", "webdav"} {
			requireFile(t, data, s.share("docs", name))
		}
		t.Logf("three uploads took %v", time.Since(began))
	}
	works()
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse + m.StackInuse)
	}
	before := heap()
	for _, door := range s.Doors() {
		var strangers []net.Conn
		for i := range *halfOpen {
			from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(i%32), byte(1+i/32%8))}}
			c, err := from.Dial("tcp", door.Addr)
			if err != nil && i == 0 {
				t.Skip("no other addresses on loopback: ", err)
			}
			require.NoError(t, err)
			t.Cleanup(func() { c.Close() })
			strangers = append(strangers, c)
			_, _ = io.WriteString(c, []string{"", "SSH-2.0-x\r\n", "USER anna\r\n", "\x16\x03\x01\x02\x00\x01", "PUT /docs/x HTTP/1.1\r\n"}[i%5])
		}
		works()
		status, more := s.Status(), heap()-before
		t.Logf("%s: %d of %d connections are left, %d KiB of memory more", door.Name, status.Unauthenticated, len(strangers), more>>10)
		require.LessOrEqual(t, status.Unauthenticated, status.MaxUnauthenticated)
		require.Less(t, more, 64<<20+int64(*halfOpen)*4096)
		for _, c := range strangers {
			c.Close()
		}
		require.Eventually(t, func() bool { return s.Status().Unauthenticated == 0 }, patience, 10*time.Millisecond)
	}
	works()
}
