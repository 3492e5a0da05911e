#include "textflag.h"

// func Lines(p, q uintptr)
TEXT ·Lines(SB), NOSPLIT|NOFRAME, $0-16
	MOVD p+0(FP), R0
	MOVD q+8(FP), R1
	PRFM (R0), PLDL1KEEP
	PRFM (R1), PLDL1KEEP
	RET

// func ToWrite(p, q uintptr)
TEXT ·ToWrite(SB), NOSPLIT|NOFRAME, $0-16
	MOVD p+0(FP), R0
	MOVD q+8(FP), R1
	PRFM (R0), PSTL1KEEP
	PRFM (R1), PSTL1KEEP
	RET

// func ToLock(p, q uintptr)
TEXT ·ToLock(SB), NOSPLIT|NOFRAME, $0-16
	MOVD p+0(FP), R0
	MOVD q+8(FP), R1
	PRFM (R0), PSTL1KEEP
	PRFM (R1), PLDL1KEEP
	RET
