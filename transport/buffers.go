package transport

import "log/slog"

// QuietQUIC is the environment variable that, set to true, has the QUIC library
// print nothing of its own to standard error when the kernel gives it small
// buffers: Listen logs that. Programs set it when they begin.
const QuietQUIC = "QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING"

// wantedBufferBytes is what the QUIC library asks the kernel for, each way.
const wantedBufferBytes = 7 << 20

// logBuffers warns of buffers that a burst may not fit in.
func logBuffers(log *slog.Logger, receiveBytes, sendBytes int) {
	if min(receiveBytes, sendBytes) >= wantedBufferBytes {
		return
	}
	log.Warn("the kernel gives the mesh's port small buffers: bursts may be dropped, and are then sent again; "+
		"raise net.core.rmem_max and net.core.wmem_max to 7500000",
		"receive_bytes", receiveBytes, "send_bytes", sendBytes, "want_bytes", wantedBufferBytes)
}
