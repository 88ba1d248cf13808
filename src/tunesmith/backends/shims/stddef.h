#pragma once
typedef decltype(sizeof(0)) size_t;
typedef decltype((char*)0 - (char*)0) ptrdiff_t;  // as NVRTC has it: long, not long long
#ifndef NULL
#define NULL 0
#endif
