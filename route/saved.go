package route

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/kv"
)

// savedVersion is that of both encodings below.
const savedVersion = 1

// ErrSaved is wrapped by errors about saved fits or sessions that can't be used.
var ErrSaved = errors.New("not what a router saved")

// savedFit is one class's fit as it is kept.
type savedFit struct {
	Class ClassKey      `json:"class"`
	Fit   cost.FitState `json:"fit"`
}

type savedFits struct {
	Version int        `json:"version"`
	Fits    []savedFit `json:"fits"`
}

// EncodeFits returns what FitStates gave, as JSON, to be kept.
func EncodeFits(states map[ClassKey]cost.FitState) ([]byte, error) {
	all := savedFits{Version: savedVersion, Fits: make([]savedFit, 0, len(states))}
	// order-free: the order in the list means nothing
	for key, state := range states {
		all.Fits = append(all.Fits, savedFit{key, state})
	}
	b, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("encode the fits: %w", err)
	}
	return b, nil
}

// DecodeFits reads what EncodeFits wrote; the error wraps ErrSaved. Whether the
// constants make sense is found out when a class is restored.
func DecodeFits(b []byte) (map[ClassKey]cost.FitState, error) {
	var all savedFits
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("%w: fits: %w", ErrSaved, err)
	}
	if all.Version != savedVersion {
		return nil, fmt.Errorf("%w: fits of version %d, this program's is %d", ErrSaved, all.Version, savedVersion)
	}
	states := make(map[ClassKey]cost.FitState, len(all.Fits))
	for _, f := range all.Fits {
		states[f.Class] = f.Fit
	}
	return states, nil
}

// sessionBytes is the size of a session: hash, worker u64, rank i16, since,
// tokens, age, boot, all little-endian.
const sessionBytes = 8 + 8 + 2 + 8 + 4 + 8 + 8

// EncodeSessions returns sessions to be kept.
func EncodeSessions(all []SavedSession) []byte {
	b := make([]byte, 0, 4+sessionBytes*len(all))
	b = binary.LittleEndian.AppendUint32(b, savedVersion)
	for _, s := range all {
		b = binary.LittleEndian.AppendUint64(b, s.Hash)
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Target.Worker))
		b = binary.LittleEndian.AppendUint16(b, uint16(s.Target.Rank))
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Since))
		b = binary.LittleEndian.AppendUint32(b, uint32(s.Tokens))
		b = binary.LittleEndian.AppendUint64(b, s.Age)
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Boot))
	}
	return b
}

// DecodeSessions reads what EncodeSessions wrote; the error wraps ErrSaved.
func DecodeSessions(b []byte) ([]SavedSession, error) {
	if len(b) < 4 || (len(b)-4)%sessionBytes != 0 {
		return nil, fmt.Errorf("%w: sessions are cut off", ErrSaved)
	}
	if v := binary.LittleEndian.Uint32(b); v != savedVersion {
		return nil, fmt.Errorf("%w: sessions of version %d, this program's is %d", ErrSaved, v, savedVersion)
	}
	b = b[4:]
	all := make([]SavedSession, 0, len(b)/sessionBytes)
	for ; len(b) > 0; b = b[sessionBytes:] {
		s := SavedSession{
			Hash:   binary.LittleEndian.Uint64(b),
			Target: kv.Target{Worker: kv.WorkerID(binary.LittleEndian.Uint64(b[8:])), Rank: int16(binary.LittleEndian.Uint16(b[16:]))},
			Since:  time.Duration(binary.LittleEndian.Uint64(b[18:])), Tokens: int32(binary.LittleEndian.Uint32(b[26:])),
			Age: binary.LittleEndian.Uint64(b[30:]), Boot: kv.Boot(binary.LittleEndian.Uint64(b[38:])),
		}
		if s.Since < 0 || s.Since > maxSince || s.Tokens < 0 {
			return nil, fmt.Errorf("%w: a session was last seen %v ago, with %d tokens", ErrSaved, s.Since, s.Tokens)
		}
		all = append(all, s)
	}
	return all, nil
}

// maxSince bounds how long ago a kept session was seen.
const maxSince = 30 * 24 * time.Hour
