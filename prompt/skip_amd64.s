#include "textflag.h"

#define FILL(name, word) \
	DATA  name<>+0(SB)/8, $word;  \
	DATA  name<>+8(SB)/8, $word;  \
	DATA  name<>+16(SB)/8, $word; \
	DATA  name<>+24(SB)/8, $word; \
	GLOBL name<>(SB), RODATA|NOPTR, $32

FILL(quotes, 0x2222222222222222)
FILL(slashes, 0x5c5c5c5c5c5c5c5c)
FILL(controls, 0x1f1f1f1f1f1f1f1f)
FILL(bees, 0x6262626262626262)

// By its low four bits, the one character that may stand behind a backslash:
// r t f \ n and /, the quote and b left out. The others match nothing.
DATA  short<>+0(SB)/8, $0xff66ff74ff72ffff
DATA  short<>+8(SB)/8, $0x2f6eff5cffffffff
DATA  short<>+16(SB)/8, $0xff66ff74ff72ffff
DATA  short<>+24(SB)/8, $0x2f6eff5cffffffff
GLOBL short<>(SB), RODATA|NOPTR, $32

// MARKS sets, for the 32 bytes in x, the bits of slash (backslashes), ends
// (quotes and control characters: those whose minimum with 0x1f is themselves)
// and short (what may stand behind a backslash).
#define MARKS(x, slash, ends, short) \
	VPCMPEQB  Y11, x, Y2;  \
	VPMOVMSKB Y2, slash;   \
	VPCMPEQB  Y10, x, Y3;  \
	VPMINUB   Y12, x, Y4;  \
	VPCMPEQB  x, Y4, Y4;   \
	VPOR      Y3, Y4, Y4;  \
	VPMOVMSKB Y4, ends;    \
	VPSHUFB   x, Y14, Y5;  \
	VPCMPEQB  x, Y5, Y5;   \
	VPCMPEQB  Y13, x, Y6;  \
	VPOR      Y3, Y5, Y5;  \
	VPOR      Y6, Y5, Y5;  \
	VPMOVMSKB Y5, short

// func skipBlocks(p []byte) int
TEXT ·skipBlocks(SB), NOSPLIT, $0-32
	MOVQ    p_base+0(FP), SI
	MOVQ    p_len+8(FP), CX
	MOVQ    SI, DI
	VMOVDQU quotes<>(SB), Y10
	VMOVDQU slashes<>(SB), Y11
	VMOVDQU controls<>(SB), Y12
	VMOVDQU bees<>(SB), Y13
	VMOVDQU short<>(SB), Y14
	MOVQ    $0x5555555555555555, R9
	XORL    R8, R8                  // 1: the block before ends in a backslash that escapes

block:
	CMPQ    CX, $64
	JLT     out
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	MARKS(Y0, AX, R12, R10)
	MARKS(Y1, BX, R13, R11)
	SHLQ    $32, BX
	SHLQ    $32, R13
	SHLQ    $32, R11
	ORQ     BX, AX
	ORQ     R13, R12
	ORQ     R11, R10

	// Which bytes are escaped: every second one behind the start of a row of
	// backslashes. Rows that start at odd bits run over by the addition.
	MOVQ R8, R11
	NOTQ R11
	ANDQ R11, AX
	LEAQ (R8)(AX*2), BX
	MOVQ R9, R11
	ORQ  BX, R11
	NOTQ R11
	ANDQ AX, R11
	XORL R8, R8
	ADDQ AX, R11
	ADCQ $0, R8
	ADDQ R11, R11
	XORQ R9, R11
	ANDQ BX, R11

	// Stop where an escaped byte may not be one, or another one ends the text.
	NOTQ R10
	ANDQ R11, R10
	MOVQ R11, R13
	NOTQ R13
	ANDQ R13, R12
	ORQ  R10, R12
	JNE  stop
	ADDQ $64, SI
	SUBQ $64, CX
	JMP  block

stop:
	BSFQ R12, AX
	ADDQ AX, SI
	BTQ  AX, R11
	SBBQ $0, SI // an escape's backslash
	JMP  done

out:
	SUBQ R8, SI

done:
	VZEROUPPER
	SUBQ DI, SI
	MOVQ SI, ret+24(FP)
	RET
