extern "C" float scale(float x) { return 2.0f * x; }
