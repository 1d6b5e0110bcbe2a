; fmod.c by `hatch run golden:runtime`: clang 22.1.8, sources 8116e907740f59fe

define float @weft_fmod_f32(float %0, float %1) nounwind {
  %3 = tail call float @llvm.fabs.f32(float %0)
  %4 = tail call float @llvm.fabs.f32(float %1)
  %5 = fcmp one float %3, 0x7FF0000000000000
  %6 = fcmp one float %1, 0.000000e+00
  %7 = and i1 %5, %6
  br i1 %7, label %11, label %8

8:
  %9 = fmul float %0, %1
  %10 = fdiv float %9, %9
  br label %53

11:
  %12 = fcmp olt float %3, %4
  br i1 %12, label %53, label %13

13:
  %14 = bitcast float %3 to i32
  %15 = lshr i32 %14, 23
  %16 = bitcast float %4 to i32
  %17 = lshr i32 %16, 23
  %18 = and i32 %14, 8388607
  %19 = icmp eq i32 %15, 0
  %20 = select i1 %19, i32 0, i32 8388608
  %21 = or disjoint i32 %20, %18
  %22 = and i32 %16, 8388607
  %23 = icmp eq i32 %17, 0
  %24 = select i1 %23, i32 0, i32 8388608
  %25 = or disjoint i32 %24, %22
  %26 = tail call i32 @llvm.umax.i32(i32 %17, i32 1)
  %27 = urem i32 %21, %25
  %28 = icmp samesign ugt i32 %15, %26
  br i1 %28, label %29, label %38

29:
  %30 = phi i32 [ %36, %29 ], [ %15, %13 ]
  %31 = phi i32 [ %35, %29 ], [ %27, %13 ]
  %32 = shl i32 %31, 1
  %33 = icmp ult i32 %32, %25
  %34 = select i1 %33, i32 0, i32 %25
  %35 = sub nuw i32 %32, %34
  %36 = add nsw i32 %30, -1
  %37 = icmp ugt i32 %36, %26
  br i1 %37, label %29, label %38

38:
  %39 = phi i32 [ %27, %13 ], [ %35, %29 ]
  %40 = add nsw i32 %26, -150
  %41 = ashr i32 %40, 1
  %42 = shl nsw i32 %41, 23
  %43 = add i32 %42, 1065353216
  %44 = bitcast i32 %43 to float
  %45 = sub nsw i32 %40, %41
  %46 = shl i32 %45, 23
  %47 = add i32 %46, 1065353216
  %48 = bitcast i32 %47 to float
  %49 = uitofp i32 %39 to float
  %50 = fmul float %44, %49
  %51 = fmul float %50, %48
  %52 = tail call float @llvm.copysign.f32(float %51, float %0)
  br label %53

53:
  %54 = phi float [ %10, %8 ], [ %52, %38 ], [ %0, %11 ]
  ret float %54
}

declare float @llvm.fabs.f32(float) nounwind

declare float @llvm.copysign.f32(float, float) nounwind

define double @weft_fmod_f64(double %0, double %1) nounwind {
  %3 = tail call double @llvm.fabs.f64(double %0)
  %4 = tail call double @llvm.fabs.f64(double %1)
  %5 = fcmp one double %3, 0x7FF0000000000000
  %6 = fcmp one double %1, 0.000000e+00
  %7 = and i1 %5, %6
  br i1 %7, label %11, label %8

8:
  %9 = fmul double %0, %1
  %10 = fdiv double %9, %9
  br label %53

11:
  %12 = fcmp olt double %3, %4
  br i1 %12, label %53, label %13

13:
  %14 = bitcast double %3 to i64
  %15 = lshr i64 %14, 52
  %16 = bitcast double %4 to i64
  %17 = lshr i64 %16, 52
  %18 = and i64 %14, 4503599627370495
  %19 = icmp eq i64 %15, 0
  %20 = select i1 %19, i64 0, i64 4503599627370496
  %21 = or disjoint i64 %20, %18
  %22 = and i64 %16, 4503599627370495
  %23 = icmp eq i64 %17, 0
  %24 = select i1 %23, i64 0, i64 4503599627370496
  %25 = or disjoint i64 %24, %22
  %26 = tail call i64 @llvm.umax.i64(i64 %17, i64 1)
  %27 = urem i64 %21, %25
  %28 = icmp samesign ugt i64 %15, %26
  br i1 %28, label %29, label %38

29:
  %30 = phi i64 [ %36, %29 ], [ %15, %13 ]
  %31 = phi i64 [ %35, %29 ], [ %27, %13 ]
  %32 = shl i64 %31, 1
  %33 = icmp ult i64 %32, %25
  %34 = select i1 %33, i64 0, i64 %25
  %35 = sub nuw i64 %32, %34
  %36 = add nsw i64 %30, -1
  %37 = icmp ugt i64 %36, %26
  br i1 %37, label %29, label %38

38:
  %39 = phi i64 [ %27, %13 ], [ %35, %29 ]
  %40 = add nsw i64 %26, -1075
  %41 = ashr i64 %40, 1
  %42 = shl nsw i64 %41, 52
  %43 = add i64 %42, 4607182418800017408
  %44 = bitcast i64 %43 to double
  %45 = sub nsw i64 %40, %41
  %46 = shl i64 %45, 52
  %47 = add i64 %46, 4607182418800017408
  %48 = bitcast i64 %47 to double
  %49 = uitofp i64 %39 to double
  %50 = fmul double %44, %49
  %51 = fmul double %50, %48
  %52 = tail call double @llvm.copysign.f64(double %51, double %0)
  br label %53

53:
  %54 = phi double [ %10, %8 ], [ %52, %38 ], [ %0, %11 ]
  ret double %54
}

declare double @llvm.fabs.f64(double) nounwind

declare double @llvm.copysign.f64(double, double) nounwind

declare i32 @llvm.umax.i32(i32, i32) nounwind

declare i64 @llvm.umax.i64(i64, i64) nounwind
