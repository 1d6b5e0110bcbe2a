; runtime.c by `hatch run golden:runtime`: clang 22.1.8, sources cbfac75fb2d51a53

@weft_layout = constant [33 x i64] [i64 64, i64 0, i64 8, i64 16, i64 72, i64 8, i64 16, i64 24, i64 32, i64 56, i64 64, i64 16, i64 32, i64 0, i64 8, i64 8, i64 16, i64 24, i64 96, i64 0, i64 8, i64 16, i64 24, i64 32, i64 40, i64 48, i64 56, i64 64, i64 72, i64 80, i64 88, i64 16, i64 -65536], align 16

define i32 @weft_parallel_for(ptr %0, ptr %1, i64 %2, i64 %3, i64 %4, i64 %5) nounwind {
  %7 = tail call i32 %0(ptr %1, i64 0, i64 0, i64 %2) nounwind
  ret i32 %7
}

define void @weft_begin_program(i64 %0) nounwind {
  ret void
}

define void @weft_end_program() nounwind {
  ret void
}

define void @weft_reset_threads() nounwind {
  ret void
}

define void @weft_stop_threads() nounwind {
  ret void
}

define ptr @weft_claim_arena(ptr captures(ret: address, provenance) %0, i64 %1) nounwind {
  br label %3

3:
  %4 = phi i64 [ 0, %2 ], [ %20, %19 ]
  %5 = getelementptr inbounds nuw i8, ptr %0, i64 %4
  %6 = load atomic i64, ptr %5 monotonic, align 64
  %7 = icmp eq i64 %6, 0
  br i1 %7, label %8, label %19

8:
  %9 = getelementptr inbounds nuw i8, ptr %5, i64 16
  %10 = load atomic i64, ptr %9 monotonic, align 16
  %11 = icmp ult i64 %10, %1
  br i1 %11, label %19, label %12

12:
  %13 = atomicrmw xchg ptr %5, i64 1 acquire, align 64
  %14 = icmp eq i64 %13, 0
  br i1 %14, label %15, label %19

15:
  %16 = load atomic i64, ptr %9 monotonic, align 16
  %17 = icmp ult i64 %16, %1
  br i1 %17, label %18, label %22

18:
  store atomic i64 0, ptr %5 release, align 64
  br label %19

19:
  %20 = add nuw nsw i64 %4, 64
  %21 = icmp samesign ult i64 %4, 960
  br i1 %21, label %3, label %22

22:
  %23 = phi ptr [ %5, %15 ], [ null, %19 ]
  ret ptr %23
}

define void @weft_release_arena(ptr %0) nounwind {
  store atomic i64 0, ptr %0 release, align 64
  ret void
}

define i64 @weft_replace_arena(ptr %0, ptr %1, i64 %2) nounwind {
  %4 = atomicrmw xchg ptr %0, i64 1 acquire, align 64
  %5 = icmp eq i64 %4, 0
  br i1 %5, label %6, label %9

6:
  %7 = getelementptr inbounds nuw i8, ptr %0, i64 8
  store ptr %1, ptr %7, align 8
  %8 = getelementptr inbounds nuw i8, ptr %0, i64 16
  store atomic i64 %2, ptr %8 monotonic, align 16
  store atomic i64 0, ptr %0 release, align 64
  br label %9

9:
  %10 = phi i64 [ 1, %6 ], [ 0, %3 ]
  ret i64 %10
}

define ptr @weft_enter(ptr %0, ptr %1, i64 %2) nounwind {
  %4 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %5 = load ptr, ptr %4, align 8
  %6 = getelementptr inbounds nuw i8, ptr %5, i64 8
  %7 = load i64, ptr %6, align 8
  %8 = icmp eq i64 %2, %7
  br i1 %8, label %12, label %9

9:
  %10 = getelementptr inbounds nuw i8, ptr %5, i64 72
  %11 = load ptr, ptr %10, align 8
  tail call void @Py_IncRef(ptr %11) nounwind
  br label %192

12:
  %13 = getelementptr inbounds nuw i8, ptr %5, i64 88
  %14 = load i64, ptr %13, align 8
  %15 = shl i64 %14, 3
  %16 = alloca i8, i64 %15, align 16
  %17 = icmp sgt i64 %14, 0
  br i1 %17, label %18, label %98

18:
  %19 = getelementptr inbounds nuw i8, ptr %5, i64 96
  %20 = getelementptr inbounds nuw i8, ptr %5, i64 48
  br label %21

21:
  %22 = phi ptr [ %1, %18 ], [ %92, %90 ]
  %23 = phi ptr [ %19, %18 ], [ %91, %90 ]
  %24 = phi i64 [ 0, %18 ], [ %93, %90 ]
  %25 = getelementptr inbounds nuw i8, ptr %23, i64 32
  %26 = load ptr, ptr %23, align 8
  %27 = icmp eq ptr %26, null
  br i1 %27, label %28, label %31

28:
  %29 = getelementptr inbounds nuw i8, ptr %23, i64 8
  %30 = load ptr, ptr %29, align 8
  br label %85

31:
  %32 = getelementptr inbounds nuw i8, ptr %23, i64 16
  %33 = load i64, ptr %32, align 8
  %34 = shl nsw i64 %33, 3
  %35 = getelementptr inbounds i8, ptr %25, i64 %34
  %36 = getelementptr inbounds nuw i8, ptr %22, i64 8
  %37 = load ptr, ptr %22, align 8
  %38 = load ptr, ptr %20, align 8
  %39 = getelementptr inbounds nuw i8, ptr %37, i64 8
  %40 = load ptr, ptr %39, align 8
  %41 = icmp eq ptr %40, %38
  br i1 %41, label %46, label %42

42:
  %43 = getelementptr inbounds nuw i8, ptr %23, i64 24
  %44 = load ptr, ptr %43, align 8
  %45 = icmp eq ptr %40, %44
  br i1 %45, label %78, label %95

46:
  %47 = getelementptr inbounds nuw i8, ptr %37, i64 56
  %48 = load ptr, ptr %47, align 8
  %49 = icmp eq ptr %48, %26
  br i1 %49, label %50, label %95

50:
  %51 = getelementptr inbounds nuw i8, ptr %37, i64 64
  %52 = load i32, ptr %51, align 8
  %53 = sext i32 %52 to i64
  %54 = getelementptr inbounds nuw i8, ptr %23, i64 8
  %55 = load i64, ptr %54, align 8
  %56 = and i64 %55, %53
  %57 = icmp eq i64 %56, %55
  br i1 %57, label %58, label %95

58:
  %59 = getelementptr inbounds nuw i8, ptr %37, i64 24
  %60 = load i32, ptr %59, align 8
  %61 = sext i32 %60 to i64
  %62 = icmp eq i64 %33, %61
  br i1 %62, label %63, label %95

63:
  %64 = icmp sgt i32 %60, 0
  br i1 %64, label %65, label %80

65:
  %66 = getelementptr inbounds nuw i8, ptr %37, i64 32
  %67 = load ptr, ptr %66, align 8
  br label %71

68:
  %69 = add nuw nsw i64 %72, 1
  %70 = icmp eq i64 %69, %33
  br i1 %70, label %80, label %71

71:
  %72 = phi i64 [ 0, %65 ], [ %69, %68 ]
  %73 = getelementptr inbounds nuw i64, ptr %67, i64 %72
  %74 = load i64, ptr %73, align 8
  %75 = getelementptr inbounds nuw i64, ptr %25, i64 %72
  %76 = load i64, ptr %75, align 8
  %77 = icmp eq i64 %74, %76
  br i1 %77, label %68, label %95

78:
  %79 = getelementptr inbounds nuw i8, ptr %37, i64 16
  br label %85

80:
  %81 = getelementptr inbounds nuw i8, ptr %37, i64 16
  %82 = load ptr, ptr %81, align 8
  %83 = getelementptr inbounds nuw ptr, ptr %16, i64 %24
  store ptr %82, ptr %83, align 8
  %84 = icmp eq ptr %82, null
  br i1 %84, label %95, label %90

85:
  %86 = phi ptr [ %30, %28 ], [ %79, %78 ]
  %87 = phi ptr [ %25, %28 ], [ %35, %78 ]
  %88 = phi ptr [ %22, %28 ], [ %36, %78 ]
  %89 = getelementptr inbounds nuw ptr, ptr %16, i64 %24
  store ptr %86, ptr %89, align 8
  br label %90

90:
  %91 = phi ptr [ %35, %80 ], [ %87, %85 ]
  %92 = phi ptr [ %36, %80 ], [ %88, %85 ]
  %93 = add nuw nsw i64 %24, 1
  %94 = icmp slt i64 %93, %14
  br i1 %94, label %21, label %98

95:
  %96 = getelementptr inbounds nuw i8, ptr %5, i64 72
  %97 = load ptr, ptr %96, align 8
  tail call void @Py_IncRef(ptr %97) nounwind
  br label %192

98:
  %99 = getelementptr inbounds nuw i8, ptr %5, i64 24
  %100 = load i64, ptr %99, align 8
  %101 = icmp eq i64 %100, 0
  br i1 %101, label %102, label %134

102:
  %103 = getelementptr inbounds nuw i8, ptr %5, i64 40
  %104 = load i64, ptr %103, align 8
  %105 = icmp eq i64 %104, 0
  br i1 %105, label %106, label %115

106:
  %107 = load ptr, ptr %5, align 8
  %108 = getelementptr inbounds nuw i8, ptr %5, i64 56
  %109 = load ptr, ptr %108, align 8
  %110 = getelementptr inbounds nuw i8, ptr %5, i64 64
  %111 = load ptr, ptr %110, align 8
  %112 = getelementptr inbounds nuw i8, ptr %5, i64 32
  %113 = load i64, ptr %112, align 8
  %114 = call i32 %107(ptr %16, ptr null, ptr %109, ptr %111, i64 %113) nounwind
  br label %125

115:
  %116 = tail call ptr @PyEval_SaveThread() nounwind
  %117 = getelementptr inbounds nuw i8, ptr %5, i64 32
  %118 = load ptr, ptr %5, align 8
  %119 = getelementptr inbounds nuw i8, ptr %5, i64 56
  %120 = load ptr, ptr %119, align 8
  %121 = getelementptr inbounds nuw i8, ptr %5, i64 64
  %122 = load ptr, ptr %121, align 8
  %123 = load i64, ptr %117, align 8
  %124 = call i32 %118(ptr %16, ptr null, ptr %120, ptr %122, i64 %123) nounwind
  call void @PyEval_RestoreThread(ptr %116) nounwind
  br label %125

125:
  %126 = phi i32 [ %124, %115 ], [ %114, %106 ]
  %127 = icmp eq i32 %126, 0
  br i1 %127, label %131, label %128

128:
  %129 = sext i32 %126 to i64
  %130 = call ptr @PyLong_FromLongLong(i64 %129) nounwind
  br label %192

131:
  %132 = getelementptr inbounds nuw i8, ptr %5, i64 80
  %133 = load ptr, ptr %132, align 8
  call void @Py_IncRef(ptr %133) nounwind
  br label %192

134:
  %135 = getelementptr inbounds nuw i8, ptr %5, i64 16
  %136 = load ptr, ptr %135, align 8
  br label %137

137:
  %138 = phi i64 [ 0, %134 ], [ %154, %153 ]
  %139 = getelementptr inbounds nuw i8, ptr %136, i64 %138
  %140 = load atomic i64, ptr %139 monotonic, align 64
  %141 = icmp eq i64 %140, 0
  br i1 %141, label %142, label %153

142:
  %143 = getelementptr inbounds nuw i8, ptr %139, i64 16
  %144 = load atomic i64, ptr %143 monotonic, align 16
  %145 = icmp ult i64 %144, %100
  br i1 %145, label %153, label %146

146:
  %147 = atomicrmw xchg ptr %139, i64 1 acquire, align 64
  %148 = icmp eq i64 %147, 0
  br i1 %148, label %149, label %153

149:
  %150 = load atomic i64, ptr %143 monotonic, align 16
  %151 = icmp ult i64 %150, %100
  br i1 %151, label %152, label %158

152:
  store atomic i64 0, ptr %139 release, align 64
  br label %153

153:
  %154 = add nuw nsw i64 %138, 64
  %155 = icmp samesign ult i64 %138, 960
  br i1 %155, label %137, label %156

156:
  %157 = tail call ptr @PyLong_FromLongLong(i64 -65536) nounwind
  br label %192

158:
  %159 = getelementptr inbounds nuw i8, ptr %139, i64 8
  %160 = load ptr, ptr %159, align 8
  %161 = getelementptr inbounds nuw i8, ptr %5, i64 40
  %162 = load i64, ptr %161, align 8
  %163 = icmp eq i64 %162, 0
  br i1 %163, label %164, label %173

164:
  %165 = load ptr, ptr %5, align 8
  %166 = getelementptr inbounds nuw i8, ptr %5, i64 56
  %167 = load ptr, ptr %166, align 8
  %168 = getelementptr inbounds nuw i8, ptr %5, i64 64
  %169 = load ptr, ptr %168, align 8
  %170 = getelementptr inbounds nuw i8, ptr %5, i64 32
  %171 = load i64, ptr %170, align 8
  %172 = call i32 %165(ptr %16, ptr %160, ptr %167, ptr %169, i64 %171) nounwind
  br label %183

173:
  %174 = tail call ptr @PyEval_SaveThread() nounwind
  %175 = getelementptr inbounds nuw i8, ptr %5, i64 32
  %176 = load ptr, ptr %5, align 8
  %177 = getelementptr inbounds nuw i8, ptr %5, i64 56
  %178 = load ptr, ptr %177, align 8
  %179 = getelementptr inbounds nuw i8, ptr %5, i64 64
  %180 = load ptr, ptr %179, align 8
  %181 = load i64, ptr %175, align 8
  %182 = call i32 %176(ptr %16, ptr %160, ptr %178, ptr %180, i64 %181) nounwind
  call void @PyEval_RestoreThread(ptr %174) nounwind
  br label %183

183:
  %184 = phi i32 [ %182, %173 ], [ %172, %164 ]
  store atomic i64 0, ptr %139 release, align 64
  %185 = icmp eq i32 %184, 0
  br i1 %185, label %189, label %186

186:
  %187 = sext i32 %184 to i64
  %188 = call ptr @PyLong_FromLongLong(i64 %187) nounwind
  br label %192

189:
  %190 = getelementptr inbounds nuw i8, ptr %5, i64 80
  %191 = load ptr, ptr %190, align 8
  call void @Py_IncRef(ptr %191) nounwind
  br label %192

192:
  %193 = phi ptr [ %11, %9 ], [ %133, %131 ], [ %97, %95 ], [ %130, %128 ], [ %157, %156 ], [ %188, %186 ], [ %191, %189 ]
  ret ptr %193
}

declare ptr @PyLong_FromLongLong(i64)

define i32 @weft_run_sequence(ptr %0, ptr %1, ptr %2, ptr %3, ptr %4, i64 %5) nounwind {
  %7 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %8 = load i64, ptr %7, align 8
  %9 = shl i64 %8, 3
  %10 = alloca i8, i64 %9, align 16
  %11 = load ptr, ptr %0, align 8
  %12 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %13 = load i64, ptr %12, align 8
  %14 = shl nsw i64 %13, 3
  %15 = getelementptr inbounds i8, ptr %11, i64 %14
  %16 = icmp sgt i64 %13, 0
  br i1 %16, label %17, label %74

17:
  %18 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %19 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %20 = getelementptr inbounds nuw i8, ptr %0, i64 16
  br label %21

21:
  %22 = phi ptr [ %11, %17 ], [ %72, %69 ]
  %23 = getelementptr inbounds nuw i8, ptr %22, i64 24
  %24 = load i64, ptr %23, align 8
  %25 = icmp sgt i64 %24, 0
  br i1 %25, label %26, label %28

26:
  %27 = getelementptr inbounds nuw i8, ptr %22, i64 32
  br label %38

28:
  %29 = load ptr, ptr %20, align 8
  %30 = load i64, ptr %22, align 8
  %31 = getelementptr inbounds ptr, ptr %29, i64 %30
  %32 = load ptr, ptr %31, align 8
  %33 = getelementptr inbounds nuw i8, ptr %22, i64 16
  %34 = load i64, ptr %33, align 8
  %35 = getelementptr inbounds i8, ptr %2, i64 %34
  %36 = call i32 %32(ptr %10, ptr %35, ptr %3, ptr %4, i64 %5) nounwind
  %37 = icmp eq i32 %36, 0
  br i1 %37, label %69, label %62

38:
  %39 = phi i64 [ 0, %26 ], [ %60, %57 ]
  %40 = getelementptr inbounds nuw i64, ptr %27, i64 %39
  %41 = load i64, ptr %40, align 8
  %42 = xor i64 %41, -1
  %43 = icmp sgt i64 %41, -1
  br i1 %43, label %44, label %46

44:
  %45 = getelementptr inbounds nuw i8, ptr %2, i64 %41
  br label %57

46:
  %47 = load i64, ptr %18, align 8
  %48 = icmp sgt i64 %47, %42
  br i1 %48, label %49, label %52

49:
  %50 = getelementptr inbounds nuw ptr, ptr %1, i64 %42
  %51 = load ptr, ptr %50, align 8
  br label %57

52:
  %53 = load ptr, ptr %19, align 8
  %54 = sub nsw i64 %42, %47
  %55 = getelementptr inbounds nuw ptr, ptr %53, i64 %54
  %56 = load ptr, ptr %55, align 8
  br label %57

57:
  %58 = phi ptr [ %45, %44 ], [ %51, %49 ], [ %56, %52 ]
  %59 = getelementptr inbounds nuw ptr, ptr %10, i64 %39
  store ptr %58, ptr %59, align 8
  %60 = add nuw nsw i64 %39, 1
  %61 = icmp slt i64 %60, %24
  br i1 %61, label %38, label %28

62:
  %63 = icmp sgt i32 %36, 0
  br i1 %63, label %64, label %74

64:
  %65 = getelementptr inbounds nuw i8, ptr %22, i64 8
  %66 = load i64, ptr %65, align 8
  %67 = trunc i64 %66 to i32
  %68 = add nsw i32 %36, %67
  br label %74

69:
  %70 = getelementptr inbounds nuw i8, ptr %22, i64 32
  %71 = load i64, ptr %23, align 8
  %72 = getelementptr inbounds i64, ptr %70, i64 %71
  %73 = icmp ult ptr %72, %15
  br i1 %73, label %21, label %74

74:
  %75 = phi i32 [ %68, %64 ], [ %36, %62 ], [ 0, %6 ], [ 0, %69 ]
  ret i32 %75
}

declare void @Py_IncRef(ptr)

declare ptr @PyEval_SaveThread()

declare void @PyEval_RestoreThread(ptr)
