#pragma once
#ifndef assert
#define assert(condition) ((void)0)
#endif
