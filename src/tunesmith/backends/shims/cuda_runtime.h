// cuda_runtime.h is part of NVRTC itself.
#pragma once
