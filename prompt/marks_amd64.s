#include "textflag.h"

DATA quotes<>+0(SB)/8, $0x2222222222222222
DATA quotes<>+8(SB)/8, $0x2222222222222222
GLOBL quotes<>(SB), RODATA|NOPTR, $16

DATA slashes<>+0(SB)/8, $0x5c5c5c5c5c5c5c5c
DATA slashes<>+8(SB)/8, $0x5c5c5c5c5c5c5c5c
GLOBL slashes<>(SB), RODATA|NOPTR, $16

DATA controls<>+0(SB)/8, $0x1f1f1f1f1f1f1f1f
DATA controls<>+8(SB)/8, $0x1f1f1f1f1f1f1f1f
GLOBL controls<>(SB), RODATA|NOPTR, $16

// MARKS leaves in r a bit for each of the 16 bytes at off that is not plain
// text. A byte is a control character where its minimum with 0x1f is itself.
#define MARKS(off, x, y, z, r) \
	MOVOU    off(SI), x; \
	MOVO     x, y;       \
	MOVO     x, z;       \
	PCMPEQB  X13, y;     \
	PMINUB   X15, z;     \
	PCMPEQB  x, z;       \
	PCMPEQB  X14, x;     \
	POR      y, z;       \
	POR      z, x;       \
	PMOVMSKB x, r

// func marks(block *[64]byte) uint64
TEXT ·marks(SB), NOSPLIT, $0-16
	MOVQ  block+0(FP), SI
	MOVOU quotes<>(SB), X13
	MOVOU slashes<>(SB), X14
	MOVOU controls<>(SB), X15
	MARKS(0, X0, X1, X2, AX)
	MARKS(16, X3, X4, X5, BX)
	MARKS(32, X6, X7, X8, CX)
	MARKS(48, X9, X10, X11, DX)
	SHLQ  $16, BX
	SHLQ  $32, CX
	SHLQ  $48, DX
	ORQ   BX, AX
	ORQ   DX, CX
	ORQ   CX, AX
	MOVQ  AX, ret+8(FP)
	RET
